"""The quantized tensor and its documented methods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize, requantize
from onnxq.errors import ShapeError, UnsupportedError, kind_of
from onnxq.qparams import IntArray, QParams
from onnxq.qtensor import checked
from onnxq.qtensor.compared import ComparedTensor
from onnxq.qtensor.stored import StoredTensor, expanded, offset_of, strided

Index = int | slice | EllipsisType | Sequence[int] | npt.NDArray[np.integer | np.bool] | None


class ViewedTensor(StoredTensor):
    """Tensors that share integers with the one they are taken of, each with its own qparams."""

    __slots__ = ()

    def __len__(self) -> int:
        return self.size(0)

    def __iter__(self) -> Iterator[Self]:
        return (self.select(0, i) for i in range(len(self)))

    def view(self, *shape: int | Sequence[int]) -> Self:
        """The same integers in another shape, one size of which may be -1."""
        checked.need_per_tensor("view", self._qparams)
        sizes = checked.sizes_of("view", shape)
        if min(sizes, default=0) < -1:
            raise ShapeError(f"view: got {sizes}; wanted sizes, or -1 once for what is left.")
        with checked.shape_errors(f"view{sizes}", self.shape):
            integers = self._integers.reshape(sizes)
        if integers.size and not np.may_share_memory(integers, self._storage):
            raise ShapeError(
                f"view: integers of shape {self.shape} and strides {self.stride()} cannot be seen "
                f"as {sizes} where they are. Call contiguous() first, which copies them."
            )
        return self._with(integers)

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Self:
        """y[i, j, ...] = memory[storage_offset + i * stride[0] + j * stride[1] + ...].

        Args:
            size: of the result.
            stride: in elements, as many as sizes, not negative.
            storage_offset: in elements; default: where this tensor starts.
        """
        checked.need_per_tensor("as_strided", self._qparams)
        sizes, strides = (
            checked.wholes("as_strided", "size", size),
            checked.wholes("as_strided", "stride", stride),
        )
        if storage_offset is None:
            offset = offset_of(self._integers, self._storage)
            return self._with(strided(self._storage, sizes, strides, offset))
        offset = checked.whole("as_strided", "storage_offset", storage_offset)
        return self._with(strided(self._storage, sizes, strides, offset))

    def expand(self, *sizes: int | Sequence[int]) -> Self:
        """Axes of size 1 repeated, without copying; -1 keeps a size.

        The result cannot be written.
        """
        checked.need_per_tensor("expand", self._qparams)
        shape = expanded(self.shape, checked.sizes_of("expand", sizes))
        return self._with(np.broadcast_to(self._integers, shape))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Axes start_dim to end_dim as one; a view where that needs no copy."""
        checked.need_per_tensor("flatten", self._qparams)
        if not self.ndim:
            return self._with(self._integers.reshape(1))
        start, end = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
        if start > end:
            raise ShapeError(
                f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in {self.shape}; "
                "exchange them."
            )
        middle = math.prod(self.shape[start : end + 1])
        return self._with(
            self._integers.reshape(*self.shape[:start], middle, *self.shape[end + 1 :])
        )

    def select(self, dim: int, index: int) -> Self:
        """The slice at index along dim, which goes; a view."""
        checked.need_per_tensor("select", self._qparams)
        axis = self._axis("select", dim)
        if not -self.shape[axis] <= checked.whole("select", "index", index) < self.shape[axis]:
            raise ShapeError(
                f"select: index {index} along dim {dim} of {self.shape}; wanted "
                f"{-self.shape[axis]} to {self.shape[axis] - 1}."
            )
        return self._with(self._integers[(slice(None),) * axis + (index, ...)])

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self:
        """Python's indexing.

        A view for numbers and slices, a copy for arrays of indices or masks.
        """
        checked.need_per_tensor("indexing", self._qparams)
        parts = index if isinstance(index, tuple) else (index,)
        steps = [part.step for part in parts if isinstance(part, slice)]
        if any(step is not None and step < 1 for step in steps):
            raise ShapeError(f"indexing: a slice has one of the steps {steps}; wanted 1 or more.")
        with checked.shape_errors("indexing", self.shape):
            # the ellipsis makes the result of numbers alone an array of rank 0, and so a view
            rest = () if any(part is ... for part in parts) else (...,)
            return self._with(self._integers[(*parts, *rest)])

    def transpose(self, dim0: int = 0, dim1: int = 1) -> Self:
        """Two axes exchanged; a view."""
        checked.need_per_tensor("transpose", self._qparams)
        first, second = self._axis("transpose", dim0), self._axis("transpose", dim1)
        return self._with(self._integers.swapaxes(first, second))

    def permute(self, *dims: int | Sequence[int]) -> Self:
        """The axes in another order; a view."""
        checked.need_per_tensor("permute", self._qparams)
        order = checked.sizes_of("permute", dims)
        with checked.shape_errors(f"permute{order}", self.shape):
            return self._with(self._integers.transpose(order))

    def contiguous(self) -> Self:
        """Itself where the integers lie in order, else a copy where they do."""
        return self if self.is_contiguous() else self._with(self._integers.copy(order="C"))


class QTensor(ViewedTensor, ComparedTensor):
    """Integers and the qparams that say which real numbers they stand for.

        real = (q - zero_point) * scale

    What changes a tensor ends in an underscore, or is given it as `out=`. Views (`view`,
    `transpose`, `x[0]`, ...) share their integers with the tensor they are taken of, as PyTorch's
    do, but each has its own qparams. `==` compares element by element, like `eq`, and a tensor is
    hashed by identity; whether two are the same is `equal`.

    Args:
        integers: qparams.dtype.storage, any shape that suits qparams.granularity; copied.
        qparams: of the integers.
    Raises:
        ShapeError: integers of another dtype, beyond the range of a type narrower than its storage,
            or whose channels or blocks are not those of the qparams.
    """

    __slots__ = ()

    def copy_(self, src: QTensor | npt.NDArray[np.float32]) -> Self:
        """Takes over src, and with a quantized one its qparams; a float one is quantized.

        Args:
            src: of this shape: a QTensor of the same dtype and scheme, or float32.
        Raises:
            ShapeError: another shape, dtype or granularity.
            UnsupportedError: several elements of this tensor are one in memory (`expand`).
        """
        if isinstance(src, QTensor):
            same = type(self._qparams.granularity) is type(src.qparams.granularity)
            if src.dtype != self.dtype or not same:
                raise ShapeError(
                    f"copy_: from {src.dtype} quantized with {src.qparams.granularity} to "
                    f"{self.dtype} with {self._qparams.granularity}; wanted the same. "
                    "Quantize src.dequantize() with the other qparams."
                )
            return self._overwrite(src.int_repr(), src.qparams)
        x = checked.float_array("copy_", src)
        if x.shape != self.shape:  # before channels are looked for in it
            raise ShapeError(f"copy_: from shape {x.shape} to {self.shape}; wanted the same.")
        return self._overwrite(quantize(x, self._qparams), self._qparams)

    def _overwrite(self, integers: IntArray, qparams: QParams) -> Self:
        if integers.shape != self.shape:
            raise ShapeError(
                f"copy_: from shape {integers.shape} to {self.shape}; wanted the same."
            )
        if not self._integers.flags.writeable:
            raise UnsupportedError(
                "copy_: several elements of this tensor are one in memory. Call clone() first."
            )
        np.copyto(self._integers, integers)
        self._qparams = qparams
        return self

    def resize_(self, *sizes: int | Sequence[int]) -> Self:
        """Another size for the same memory, which grows where it must; new elements are 0.

        Where the memory grows, tensors that shared it keep the old one.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a negative size.
        """
        checked.need_per_tensor("resize_", self._qparams)
        shape = checked.sizes_of("resize_", sizes)
        if min(shape, default=0) < 0:
            raise ShapeError(f"resize_: got {shape}; wanted no negative numbers.")
        start = offset_of(self._integers, self._storage)
        end = start + math.prod(shape)
        if end > self._storage.size:
            new = np.full(end - self._storage.size, self._qparams.zero_point, self._storage.dtype)
            self._storage = np.concatenate([self._storage, new])
        self._integers = self._storage[start:end].reshape(shape)
        return self

    def mean(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        out: QTensor | None = None,
    ) -> QTensor:
        """The mean of all elements, or along dim: saturate(rint(sum (q - zp) * m) + out_zp).

        m = scale / (out_scale * count) in float32, which is com.microsoft QLinearGlobalAveragePool.

        Args:
            dim: one axis or several; None or none: all.
            keepdim: whether these axes stay, with size 1.
            out: takes the result, which is quantized with out's qparams (default: this tensor's).
                Of this dtype; of the result's shape or without elements.
        Raises:
            UnsupportedError: per-channel.
            ShapeError: nothing to average, a dim that is not there or twice, or an unfit out.
        """
        checked.need_per_tensor("mean", self._qparams)
        given = () if dim is None else checked.wholes("mean", "dim", dim)
        listed = given or tuple(range(self.ndim))
        axes = tuple(self._axis("mean", d) for d in listed)
        count = math.prod(self.shape[a] for a in axes) if self.ndim else 1
        if count == 0 or len(set(axes)) < len(axes):
            raise ShapeError(
                f"mean: over dims {listed} of {self.shape}; wanted elements, no twins."
            )
        p = self._qparams
        q = p if out is None else output_qparams("mean", self, out)
        total = self._integers.sum(
            axis=axes if self.ndim else None, keepdims=keepdim, dtype=np.int64
        )
        centred = np.asarray(total) - count * p.zero_point.astype(np.int64)
        # sums beyond int32 are no different: requantize goes on in float
        acc = cast("npt.NDArray[np.int32]", centred)
        integers = requantize(acc, np.asarray(p.scale / (q.scale * np.float32(count))), q)
        return QTensor(integers, q) if out is None else write_out("mean", integers, out)


def check_tensor(op: str, x: object, name: str = "input") -> QTensor:
    """Passes a quantized tensor on. Raises ShapeError otherwise."""
    if isinstance(x, QTensor):
        return x
    raise ShapeError(
        f"{op}: {name} is {kind_of(x)}; wanted a QTensor. "
        "Make one with onnxq.qtensor.quantize_per_tensor."
    )


def write_out(op: str, integers: IntArray, out: QTensor) -> QTensor:
    """Puts integers into `out`, whose qparams they have; one without elements gets their shape."""
    if not out.numel():
        out.resize_(integers.shape)
    if integers.shape != out.shape:
        raise ShapeError(
            f"{op}: out has shape {out.shape}; wanted {integers.shape}, or no elements."
        )
    return out.copy_(QTensor(integers, out.qparams))


def output_qparams(op: str, operand: QTensor, out: object) -> QParams:
    """The qparams that `out` gives the result."""
    p = check_tensor(op, out, "out").qparams
    checked.need_per_tensor(f"{op}(out=)", p)
    if p.dtype != operand.dtype:
        raise ShapeError(f"{op}: out is {p.dtype}; wanted {operand.dtype}, as the operand.")
    return p
