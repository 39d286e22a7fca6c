"""The quantized tensor and its documented methods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize, requantize
from onnxq.errors import ShapeError, UnsupportedError, kind_of
from onnxq.qtensor.checked import float_array, need_per_tensor, sizes_of, wholes
from onnxq.qtensor.compared import ComparedTensor
from onnxq.qtensor.strides import offset_of
from onnxq.qtensor.views import ViewedTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.qparams import IntArray, QParams


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
        x = float_array("copy_", src)
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
        need_per_tensor("resize_", self._qparams)
        shape = sizes_of("resize_", sizes)
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
    need_per_tensor(f"{op}(out=)", p)
    if p.dtype != operand.dtype:
        raise ShapeError(f"{op}: out is {p.dtype}; wanted {operand.dtype}, as the operand.")
    return p
