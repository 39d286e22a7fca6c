"""The quantized tensor and its documented methods.

(Over 400 lines: one class with every method that PyTorch documents, each of them short.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from onnxq.affine import dequantize, quantize, requantize
from onnxq.errors import ShapeError, UnsupportedError, kind_of
from onnxq.qparams import (
    IntArray,
    PerChannel,
    PerTensor,
    QParams,
    QScheme,
    check_shape,
    per_channel_affine,
    per_tensor_affine,
)
from onnxq.qtensor.checked import (
    float_array,
    need_per_tensor,
    shape_errors,
    sizes_of,
    whole,
    wholes,
)
from onnxq.qtensor.printing import text_of
from onnxq.qtensor.strides import expanded, offset_of, strided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import EllipsisType

    from onnxq.dtypes import QDType

    Index = int | slice | EllipsisType | Sequence[int] | npt.NDArray[np.integer | np.bool] | None

Bools: TypeAlias = npt.NDArray[np.bool]
Indices: TypeAlias = npt.NDArray[np.int64]


class QTensor:
    """Integers and the qparams that say which real numbers they stand for.

        real = (code - zero_point) * scale

    What changes a tensor ends in an underscore, or is given it as `out=`. Views (`view`,
    `transpose`, `x[0]`, ...) share their codes with the tensor they are taken of, as PyTorch's do,
    but each has its own qparams. `==` compares element by element, like `eq`, and a tensor is
    hashed by identity; whether two are the same is `equal`.

    Args:
        codes: qparams.dtype.storage, any shape that suits qparams.granularity; copied.
        qparams: of the codes.

    Raises:
        ShapeError: codes of another dtype, beyond the range of a type narrower than its storage,
            or whose channels or blocks are not those of the qparams.
    """

    __slots__ = ("_codes", "_qparams", "_storage")
    __array_ufunc__ = None  # array < tensor asks the tensor

    def __init__(self, codes: IntArray, qparams: QParams) -> None:
        if not isinstance(qparams, QParams):
            raise ShapeError(f"QTensor: qparams is {kind_of(qparams)}; wanted QParams.")
        codes = np.array(codes, order="C")
        _check_codes(codes, qparams)
        self._codes: IntArray = codes
        self._storage: IntArray = codes.reshape(-1)
        self._qparams = qparams

    # what it is

    @property
    def qparams(self) -> QParams:
        """Scale, zero point, dtype and granularity."""
        return self._qparams

    @property
    def dtype(self) -> QDType:
        """Type of the codes: quint8, ..."""
        return self._qparams.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes along all axes."""
        return self._codes.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._codes.ndim

    @overload
    def size(self) -> tuple[int, ...]: ...
    @overload
    def size(self, dim: int) -> int: ...
    def size(self, dim: int | None = None) -> tuple[int, ...] | int:
        """All sizes, or the one along dim. Raises ShapeError for a dim that is not there."""
        if dim is None:
            return self.shape
        with shape_errors("size", self.shape):
            return self.shape[dim]

    def numel(self) -> int:
        """Number of elements."""
        return self._codes.size

    def stride(self) -> tuple[int, ...]:
        """Elements from one index to the next along each axis, in memory."""
        return tuple(step // self._codes.itemsize for step in self._codes.strides)

    def is_contiguous(self) -> bool:
        """Whether the codes lie in memory in the order of their indices."""
        return self._codes.flags.c_contiguous

    def int_repr(self) -> IntArray:
        """The codes: dtype.storage, the tensor's shape; a copy."""
        return self._codes.copy(order="C")

    def dequantize(self) -> npt.NDArray[np.float32]:
        """(codes - zero_point) * scale, float32, the tensor's shape."""
        return dequantize(self._codes, self._qparams)

    def item(self) -> float:
        """The real value of the only element. Raises ShapeError where there are more, or none."""
        with shape_errors("item", self.shape):
            return float(self.dequantize().item())

    def qscheme(self) -> QScheme:
        """per_tensor_affine or per_channel_affine. Raises UnsupportedError for blocks."""
        granularity = self._qparams.granularity
        if isinstance(granularity, PerTensor):
            return per_tensor_affine
        if isinstance(granularity, PerChannel):
            return per_channel_affine
        raise UnsupportedError(
            f"qscheme: PyTorch has no name for {granularity}; look at qparams.granularity."
        )

    def q_scale(self) -> float:
        """The scale. Raises UnsupportedError where there are several."""
        need_per_tensor("q_scale", self._qparams)
        return float(self._qparams.scale)

    def q_zero_point(self) -> int:
        """The code of 0. Raises UnsupportedError where there are several."""
        need_per_tensor("q_zero_point", self._qparams)
        return int(self._qparams.zero_point)

    def q_per_channel_scales(self) -> npt.NDArray[np.float64]:
        """The scales, float64 (channels,), each a float32. Raises UnsupportedError: one for all."""
        self._channels("q_per_channel_scales")
        return self._qparams.scale.astype(np.float64)

    def q_per_channel_zero_points(self) -> Indices:
        """The zero points, int64 (channels,). Raises UnsupportedError: one for all."""
        self._channels("q_per_channel_zero_points")
        return self._qparams.zero_point.astype(np.int64)

    def q_per_channel_axis(self) -> int:
        """The axis of the channels. Raises UnsupportedError: one scale for all."""
        return self._channels("q_per_channel_axis").axis % self.ndim

    def _channels(self, op: str) -> PerChannel:
        granularity = self._qparams.granularity
        if isinstance(granularity, PerChannel):
            return granularity
        raise UnsupportedError(
            f"{op}: the tensor is quantized with {granularity}, not per channel. "
            "Call q_scale() and q_zero_point(), or look at qparams."
        )

    def __repr__(self) -> str:
        return text_of(self.dequantize(), self._qparams)

    def __len__(self) -> int:
        return self.size(0)

    def __iter__(self) -> Iterator[Self]:
        return (self.select(0, i) for i in range(len(self)))

    def __array__(self, *args: object, **kwargs: object) -> npt.NDArray[np.generic]:
        raise UnsupportedError(
            "a QTensor is no array: call dequantize() for its real values, int_repr() for integers."
        )

    def __bool__(self) -> bool:
        return self.item() != 0

    def __reduce__(self) -> tuple[type[Self], tuple[IntArray, QParams]]:
        return type(self), (self.int_repr(), self._qparams)

    # views; of per-tensor quantized tensors, as documented

    def _with(self, codes: IntArray) -> Self:
        """A tensor of those codes and the same qparams; it shares memory where they do."""
        new = object.__new__(type(self))
        new._codes, new._qparams = codes, self._qparams
        shared = np.may_share_memory(codes, self._storage)
        new._storage = self._storage if shared else codes.ravel(order="K")
        return new

    def view(self, *shape: int | Sequence[int]) -> Self:
        """The same codes in another shape, one size of which may be -1.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: another number of elements, or the codes' place in memory does not allow it.
        """
        need_per_tensor("view", self._qparams)
        sizes = sizes_of("view", shape)
        if min(sizes, default=0) < -1:
            raise ShapeError(f"view: got {sizes}; wanted sizes, or -1 once for what is left.")
        with shape_errors(f"view{sizes}", self.shape):
            codes = self._codes.reshape(sizes)
        if codes.size and not np.may_share_memory(codes, self._storage):
            raise ShapeError(
                f"view: codes of shape {self.shape} and strides {self.stride()} cannot be seen as "
                f"{sizes} where they are. Call contiguous() first, which copies them."
            )
        return self._with(codes)

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Self:
        """y[i, j, ...] = memory[storage_offset + i * stride[0] + j * stride[1] + ...].

        Args:
            size: of the result.
            stride: in elements, as many as sizes, not negative.
            storage_offset: in elements; default: where this tensor starts.
        Raises:
            UnsupportedError: per-channel.
            ShapeError: sizes and strides do not fit together, or reach beyond the memory.
        """
        need_per_tensor("as_strided", self._qparams)
        sizes, strides = wholes("as_strided", "size", size), wholes("as_strided", "stride", stride)
        if storage_offset is None:
            offset = offset_of(self._codes, self._storage)
            return self._with(strided(self._storage, sizes, strides, offset))
        offset = whole("as_strided", "storage_offset", storage_offset)
        return self._with(strided(self._storage, sizes, strides, offset))

    def expand(self, *sizes: int | Sequence[int]) -> Self:
        """Axes of size 1 repeated, without copying; -1 keeps a size. The result cannot be written.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: an axis of another size than 1 would grow, or fewer sizes than axes.
        """
        need_per_tensor("expand", self._qparams)
        shape = expanded(self.shape, sizes_of("expand", sizes))
        return self._with(np.broadcast_to(self._codes, shape))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Axes start_dim to end_dim as one; a view where that needs no copy.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a dim that is not there, or start_dim behind end_dim.
        """
        need_per_tensor("flatten", self._qparams)
        if not self.ndim:
            return self._with(self._codes.reshape(1))
        start, end = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
        if start > end:
            raise ShapeError(
                f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in {self.shape}; "
                "exchange them."
            )
        middle = math.prod(self.shape[start : end + 1])
        return self._with(self._codes.reshape(*self.shape[:start], middle, *self.shape[end + 1 :]))

    def select(self, dim: int, index: int) -> Self:
        """The slice at index along dim, which goes; a view.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a dim or an index that is not there.
        """
        need_per_tensor("select", self._qparams)
        axis = self._axis("select", dim)
        if not -self.shape[axis] <= whole("select", "index", index) < self.shape[axis]:
            raise ShapeError(
                f"select: index {index} along dim {dim} of {self.shape}; wanted "
                f"{-self.shape[axis]} to {self.shape[axis] - 1}."
            )
        return self._with(self._codes[(slice(None),) * axis + (index, ...)])

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self:
        """Python's indexing; a view for numbers and slices, a copy for arrays of indices or masks.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: an index that is not there, or a slice with a step below 1.
        """
        need_per_tensor("indexing", self._qparams)
        parts = index if isinstance(index, tuple) else (index,)
        steps = [part.step for part in parts if isinstance(part, slice)]
        if any(step is not None and step < 1 for step in steps):
            raise ShapeError(f"indexing: a slice has one of the steps {steps}; wanted 1 or more.")
        with shape_errors("indexing", self.shape):
            # the ellipsis makes the result of numbers alone an array of rank 0, and so a view
            rest = () if any(part is ... for part in parts) else (...,)
            return self._with(self._codes[(*parts, *rest)])

    def transpose(self, dim0: int = 0, dim1: int = 1) -> Self:
        """Two axes exchanged; a view.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a dim that is not there.
        """
        need_per_tensor("transpose", self._qparams)
        first, second = self._axis("transpose", dim0), self._axis("transpose", dim1)
        return self._with(self._codes.swapaxes(first, second))

    def permute(self, *dims: int | Sequence[int]) -> Self:
        """The axes in another order; a view.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: not every axis once.
        """
        need_per_tensor("permute", self._qparams)
        order = sizes_of("permute", dims)
        with shape_errors(f"permute{order}", self.shape):
            return self._with(self._codes.transpose(order))

    def contiguous(self) -> Self:
        """Itself where the codes lie in order, else a copy where they do."""
        return self if self.is_contiguous() else self._with(self._codes.copy(order="C"))

    def _axis(self, op: str, dim: int) -> int:
        """The axis from 0; a tensor of rank 0 has one, as PyTorch counts."""
        rank = max(self.ndim, 1)
        if not -rank <= whole(op, "dim", dim) < rank:
            raise ShapeError(
                f"{op}: dim is {dim}; a tensor of shape {self.shape} wants {-rank} to {rank - 1}."
            )
        return dim % rank

    # comparisons, of real values

    def eq(self, other: object) -> Bools:
        """Where self == other, of real values that broadcast; other: tensor, array or number.

        Raises:
            ShapeError: the shapes do not broadcast.
        """
        return self._compare(np.equal, other)

    def ne(self, other: object) -> Bools:
        """Where self != other, as `eq`."""
        return self._compare(np.not_equal, other)

    def ge(self, other: object) -> Bools:
        """Where self >= other, as `eq`."""
        return self._compare(np.greater_equal, other)

    def le(self, other: object) -> Bools:
        """Where self <= other, as `eq`."""
        return self._compare(np.less_equal, other)

    def gt(self, other: object) -> Bools:
        """Where self > other, as `eq`."""
        return self._compare(np.greater, other)

    def lt(self, other: object) -> Bools:
        """Where self < other, as `eq`."""
        return self._compare(np.less, other)

    def _compare(self, compare: Callable[..., Bools], other: object) -> Bools:
        right = other.dequantize() if isinstance(other, QTensor) else other
        with shape_errors(f"comparison with {type(other).__name__}", self.shape):
            return np.asarray(compare(self.dequantize(), right))

    __eq__ = eq  # type: ignore[assignment]  # element by element, as documented
    __ne__ = ne  # type: ignore[assignment]  # likewise: object's gives one bool
    __ge__, __le__, __gt__, __lt__ = ge, le, gt, lt
    __hash__ = object.__hash__

    def equal(self, other: object) -> bool:
        """Whether other is a QTensor with the same shape, integers and quantization parameters."""
        return (
            isinstance(other, QTensor)
            and self._qparams == other.qparams
            and np.array_equal(self._codes, other.int_repr())
        )

    # copies

    def clone(self) -> Self:
        """A contiguous copy that shares nothing."""
        return self._with(self._codes.copy(order="C"))

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
        x = float_array("copy_", src)
        if x.shape != self.shape:  # before channels are looked for in it
            raise ShapeError(f"copy_: from shape {x.shape} to {self.shape}; wanted the same.")
        return self._overwrite(quantize(x, self._qparams), self._qparams)

    def _overwrite(self, codes: IntArray, qparams: QParams) -> Self:
        if codes.shape != self.shape:
            raise ShapeError(f"copy_: from shape {codes.shape} to {self.shape}; wanted the same.")
        if not self._codes.flags.writeable:
            raise UnsupportedError(
                "copy_: several elements of this tensor are one in memory. Call clone() first."
            )
        np.copyto(self._codes, codes)
        self._qparams = qparams
        return self

    def resize_(self, *sizes: int | Sequence[int]) -> Self:
        """Another size for the same memory, which grows where it must; new elements are 0.

        Where the memory grows, tensors that shared it keep the old one.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a negative size.
        """
        need_per_tensor("resize_", self._qparams)
        shape = sizes_of("resize_", sizes)
        if min(shape, default=0) < 0:
            raise ShapeError(f"resize_: got {shape}; wanted no negative numbers.")
        start = offset_of(self._codes, self._storage)
        end = start + math.prod(shape)
        if end > self._storage.size:
            new = np.full(end - self._storage.size, self._qparams.zero_point, self._storage.dtype)
            self._storage = np.concatenate([self._storage, new])
        self._codes = self._storage[start:end].reshape(shape)
        return self

    # order: scales are positive, so codes and real values are in the same order

    @overload
    def max(self) -> Self: ...
    @overload
    def max(self, dim: int, keepdim: bool = ...) -> Ordered: ...
    def max(self, dim: int | None = None, keepdim: bool = False) -> Self | Ordered:
        """The largest element, rank 0; or, along dim, (values, indices), the first one of equals.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: nothing to choose from, or a dim that is not there.
        """
        if dim is None:
            return self._with(np.asarray(self._nonempty("max", None).max()))
        return self._extreme("max", np.argmax, dim, keepdim)

    @overload
    def min(self) -> Self: ...
    @overload
    def min(self, dim: int, keepdim: bool = ...) -> Ordered: ...
    def min(self, dim: int | None = None, keepdim: bool = False) -> Self | Ordered:
        """The smallest element, as `max`."""
        if dim is None:
            return self._with(np.asarray(self._nonempty("min", None).min()))
        return self._extreme("min", np.argmin, dim, keepdim)

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Indices:
        """Index of the largest element in order of the indices, or those along dim; int64.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: nothing to choose from, or a dim that is not there.
        """
        return self._index("argmax", np.argmax, dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Indices:
        """Index of the smallest element, as `argmax`."""
        return self._index("argmin", np.argmin, dim, keepdim)

    def _index(
        self, op: str, find: Callable[..., Indices], dim: int | None, keepdim: bool
    ) -> Indices:
        codes = self._nonempty(op, dim)
        axis = None if dim is None else self._axis(op, dim)
        found = np.asarray(find(codes.reshape(codes.shape or 1), axis=axis), np.int64)
        if not keepdim:
            return found
        return found.reshape(
            [1 if axis is None or i == axis else n for i, n in enumerate(self.shape)]
        )

    def _extreme(self, op: str, find: Callable[..., Indices], dim: int, keepdim: bool) -> Ordered:
        indices = self._index(op, find, dim, True)
        if not self.ndim:
            return Ordered(self.clone(), indices)
        axis = self._axis(op, dim)
        values = np.take_along_axis(self._codes, indices, axis)
        if keepdim:
            return Ordered(self._with(values), indices)
        return Ordered(self._with(values.squeeze(axis)), indices.squeeze(axis))

    def _nonempty(self, op: str, dim: int | None) -> IntArray:
        need_per_tensor(op, self._qparams)
        sizes = (
            self.shape if dim is None else [self.shape[self._axis(op, dim)]] if self.ndim else ()
        )
        if 0 in sizes:
            raise ShapeError(f"{op}: no elements to reduce: shape {self.shape}, dim {dim}.")
        return self._codes

    def argsort(self, dim: int = -1, descending: bool = False) -> Indices:
        """Indices that sort along dim, int64, the tensor's shape; equals stay in order.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a dim that is not there.
        """
        need_per_tensor("argsort", self._qparams)
        axis = self._axis("argsort", dim)
        keys = ~self._codes if descending else self._codes  # ~ turns the order round
        order = np.argsort(keys.reshape(keys.shape or 1), axis=axis, kind="stable")
        return order.reshape(self.shape).astype(np.int64)

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Ordered:
        """(values, indices) sorted along dim; equals stay in order, whether `stable` or not.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: a dim that is not there.
        """
        return self._in_order(self.argsort(dim, descending), self._axis("sort", dim))

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Ordered:
        """(values, indices) of the k largest, or smallest, along dim, in order; first of equals.

        Raises:
            UnsupportedError: per-channel.
            ShapeError: fewer than k elements along dim, k below 0, or a dim that is not there.
        """
        need_per_tensor("topk", self._qparams)
        axis = self._axis("topk", dim)
        there = self.shape[axis] if self.ndim else 1
        if not 0 <= whole("topk", "k", k) <= there:
            raise ShapeError(f"topk: k is {k}; wanted 0 to {there}, the size along dim {dim}.")
        order = self.argsort(dim, descending=largest)
        return self._in_order(
            order[(slice(None),) * axis + (slice(k),)] if self.ndim else order, axis
        )

    def _in_order(self, order: Indices, axis: int) -> Ordered:
        if not self.ndim:
            return Ordered(self.clone(), order)
        return Ordered(self._with(np.take_along_axis(self._codes, order, axis)), order)

    def mean(
        self,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        out: QTensor | None = None,
    ) -> QTensor:
        """The mean of all elements, or along dim: saturate(rint(sum (code - zp) * m) + out_zp).

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
        need_per_tensor("mean", self._qparams)
        given = () if dim is None else wholes("mean", "dim", dim)
        listed = given or tuple(range(self.ndim))
        axes = tuple(self._axis("mean", d) for d in listed)
        count = math.prod(self.shape[a] for a in axes) if self.ndim else 1
        if count == 0 or len(set(axes)) < len(axes):
            raise ShapeError(
                f"mean: over dims {listed} of {self.shape}; wanted elements, no twins."
            )
        p = self._qparams
        q = p if out is None else output_qparams("mean", self, out)
        total = self._codes.sum(axis=axes if self.ndim else None, keepdims=keepdim, dtype=np.int64)
        centred = np.asarray(total) - count * p.zero_point.astype(np.int64)
        # sums beyond int32 are no different: requantize goes on in float
        acc = cast("npt.NDArray[np.int32]", centred)
        codes = requantize(acc, np.asarray(p.scale / (q.scale * np.float32(count))), q)
        return QTensor(codes, q) if out is None else write_out("mean", codes, out)


class Ordered(NamedTuple):
    """Result of `sort`, `topk`, `max` and `min` along an axis: values, and int64 indices."""

    values: QTensor
    indices: Indices


def check_tensor(op: str, x: object, name: str = "input") -> QTensor:
    """Passes a quantized tensor on. Raises ShapeError otherwise."""
    if isinstance(x, QTensor):
        return x
    raise ShapeError(
        f"{op}: {name} is {kind_of(x)}; wanted a QTensor. "
        "Make one with onnxq.qtensor.quantize_per_tensor."
    )


def write_out(op: str, codes: IntArray, out: QTensor) -> QTensor:
    """Puts codes into `out`, whose qparams they have; one without elements gets their shape.

    Raises:
        ShapeError: out has another shape.
        UnsupportedError: out cannot be written.
    """
    if not out.numel():
        out.resize_(codes.shape)
    if codes.shape != out.shape:
        raise ShapeError(f"{op}: out has shape {out.shape}; wanted {codes.shape}, or no elements.")
    return out.copy_(QTensor(codes, out.qparams))


def output_qparams(op: str, operand: QTensor, out: object) -> QParams:
    """The qparams that `out` gives the result.

    Raises:
        ShapeError: no QTensor, or of another dtype than the operand.
        UnsupportedError: quantized per channel or block.
    """
    p = check_tensor(op, out, "out").qparams
    need_per_tensor(f"{op}(out=)", p)
    if p.dtype != operand.dtype:
        raise ShapeError(f"{op}: out is {p.dtype}; wanted {operand.dtype}, as the operand.")
    return p


def _check_codes(codes: IntArray, qparams: QParams) -> None:
    """Raises ShapeError for a dtype, codes or a shape that qparams do not fit."""
    dtype = qparams.dtype
    if codes.dtype != dtype.storage:
        raise ShapeError(
            f"QTensor: codes have dtype {codes.dtype}; {dtype} wants {dtype.storage}. "
            "Call quantize_per_tensor for float values."
        )
    narrow = dtype.bits < 8 * dtype.storage.itemsize  # others hold what their storage holds
    if narrow and codes.size and not dtype.qmin <= codes.min() <= codes.max() <= dtype.qmax:
        raise ShapeError(
            f"QTensor: codes are {codes.min()} to {codes.max()}; {dtype} holds {dtype.qmin} to "
            f"{dtype.qmax}."
        )
    check_shape(codes.shape, qparams)
