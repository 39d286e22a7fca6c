"""Integers in memory with their qparams, and what can be read off them."""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from onnxq.affine import dequantize
from onnxq.dtypes import QDType
from onnxq.errors import ShapeError, UnsupportedError, kind_of
from onnxq.qparams import (
    IntArray,
    PerBlock,
    PerChannel,
    PerTensor,
    QParams,
    QScheme,
    check_shape,
    per_channel_affine,
    per_tensor_affine,
)
from onnxq.qtensor.checked import detached, need_per_tensor, shape_errors, whole

Indices: TypeAlias = npt.NDArray[np.int64]


class StoredTensor:
    """Integers and qparams; the base of QTensor's views, comparisons and copies.

    Args:
        integers: qparams.dtype.storage, any shape that suits qparams.granularity; copied.
        qparams: of the integers.
    """

    __slots__ = ("_integers", "_qparams", "_storage")

    def __init__(self, integers: IntArray, qparams: QParams) -> None:
        if not isinstance(qparams, QParams):
            raise ShapeError(f"QTensor: qparams is {kind_of(qparams)}; wanted QParams.")
        integers = np.array(integers, order="C")
        _check_integers(integers, qparams)
        self._integers: IntArray = integers
        self._storage: IntArray = integers.reshape(-1)
        self._qparams = qparams

    @property
    def qparams(self) -> QParams:
        """Scale, zero point, dtype and granularity."""
        return self._qparams

    @property
    def dtype(self) -> QDType:
        """Type of the integers: quint8, ..."""
        return self._qparams.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes along all axes."""
        return self._integers.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._integers.ndim

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
        return self._integers.size

    def stride(self) -> tuple[int, ...]:
        """Elements from one index to the next along each axis, in memory."""
        return tuple(step // self._integers.itemsize for step in self._integers.strides)

    def is_contiguous(self) -> bool:
        """Whether the integers lie in memory in the order of their indices."""
        return self._integers.flags.c_contiguous

    def int_repr(self) -> IntArray:
        """The integers: dtype.storage, the tensor's shape; a copy."""
        return self._integers.copy(order="C")

    def dequantize(self) -> npt.NDArray[np.float32]:
        """(integers - zero_point) * scale, float32, the tensor's shape."""
        return dequantize(self._integers, self._qparams)

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
        """The integer of 0. Raises UnsupportedError where there are several."""
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

    def __array__(self, *args: object, **kwargs: object) -> npt.NDArray[np.generic]:
        raise UnsupportedError(
            "a QTensor is no array: call dequantize() for its real values, int_repr() for integers."
        )

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        """Answers torch.max(y), F.relu(y) ...: the method, or function of onnxq.functional."""
        name = func.__name__.lstrip("_")
        # by name, for it is above here: torch knows the tensor, not the function that it asks for
        own = getattr(cls, name, None) or getattr(import_module("onnxq.functional"), name, None)
        taken = signature(own).parameters if callable(own) else {}
        # None and False are what torch's functions pass on of options that nobody gave
        named = {
            k: v for k, v in (kwargs or {}).items() if k in taken or not (v is None or v is False)
        }
        for key, parameter in taken.items():
            if key in {"scale", "zero_point"} and parameter.default is parameter.empty:
                named[key] = getattr(args[0], f"q_{key}")()  # torch's functions keep them
        unknown = sorted(named.keys() - taken.keys())
        if not callable(own) or unknown:
            raise UnsupportedError(
                f"torch.{name}{''.join(f', {key}=' for key in unknown)}: quantized tensors have no "
                "such function. Call it on dequantize()."
            )
        return own(*(detached(x) if hasattr(x, "detach") else x for x in args), **named)

    def __bool__(self) -> bool:
        return self.item() != 0

    def __reduce__(self) -> tuple[type[Self], tuple[IntArray, QParams]]:
        return type(self), (self.int_repr(), self._qparams)

    def clone(self) -> Self:
        """A contiguous copy that shares nothing."""
        return self._with(self._integers.copy(order="C"))

    def _with(self, integers: IntArray) -> Self:
        """A tensor of those integers and the same qparams; it shares memory where they do."""
        new = object.__new__(type(self))
        new._integers, new._qparams = integers, self._qparams
        shared = np.may_share_memory(integers, self._storage)
        new._storage = self._storage if shared else integers.ravel(order="K")
        return new

    def _axis(self, op: str, dim: int) -> int:
        """The axis from 0; a tensor of rank 0 has one, as PyTorch counts."""
        rank = max(self.ndim, 1)
        if not -rank <= whole(op, "dim", dim) < rank:
            raise ShapeError(
                f"{op}: dim is {dim}; a tensor of shape {self.shape} wants {-rank} to {rank - 1}."
            )
        return dim % rank


def _check_integers(integers: IntArray, qparams: QParams) -> None:
    """Raises ShapeError for a dtype, integers or a shape that qparams do not fit."""
    dtype = qparams.dtype
    if integers.dtype != dtype.storage:
        raise ShapeError(
            f"QTensor: integers have dtype {integers.dtype}; {dtype} wants {dtype.storage}. "
            "Call quantize_per_tensor for float values."
        )
    narrow = dtype.bits < 8 * dtype.storage.itemsize  # others hold what their storage holds
    if (
        narrow
        and integers.size
        and not dtype.qmin <= integers.min() <= integers.max() <= dtype.qmax
    ):
        raise ShapeError(
            f"QTensor: integers are {integers.min()} to {integers.max()}; {dtype} holds "
            f"{dtype.qmin} to {dtype.qmax}."
        )
    check_shape(integers.shape, qparams)


START = "QTensor("
WIDTH = 80  # columns, as PyTorch prints
DIGITS = 4


def text_of(values: npt.NDArray[np.float32], qparams: QParams) -> str:
    """QTensor([real values], size=(2, 3), dtype=quint8, quantization_scheme=..., scale=...)."""
    fields = [f"size={values.shape}", f"dtype=q{qparams.dtype}", *_scheme(qparams)]
    lines = [START + _body(values)]
    for field in fields:
        lines[-1] += ","
        if len(lines[-1].rsplit("\n", 1)[-1]) + len(field) + 2 <= WIDTH:
            lines[-1] += f" {field}"
        else:
            lines.append(" " * len(START) + field)
    return "\n".join(lines) + ")"


def _body(values: npt.NDArray[np.float32]) -> str:
    """The values with four digits after the point, or none where all are whole numbers."""
    if not values.size:
        return "[]"
    whole = bool((values == np.rint(values)).all())
    return np.array2string(
        values,
        max_line_width=WIDTH,
        precision=DIGITS,
        separator=", ",
        prefix=START,
        floatmode="maxprec" if whole else "fixed",
        threshold=1000,
        edgeitems=3,
    )


def _scheme(qparams: QParams) -> list[str]:
    numbers = [f"scale={_list(qparams.scale)}", f"zero_point={_list(qparams.zero_point)}"]
    match qparams.granularity:
        case PerChannel(axis):
            return ["quantization_scheme=per_channel_affine", *numbers, f"axis={axis}"]
        case PerBlock(axis, size):
            blocks = [f"axis={axis}", f"block_size={size}"]
            return ["quantization_scheme=per_block_affine", *numbers, *blocks]
    return ["quantization_scheme=per_tensor_affine", *numbers]


def _list(values: npt.NDArray[np.generic]) -> str:
    if values.ndim == 0:
        return str(values[()])
    return np.array2string(values, separator=", ", threshold=12, edgeitems=2, max_line_width=1000)


# --- Views by sizes and strides: one flat array of integers that several tensors share


def offset_of(integers: IntArray, storage: IntArray) -> int:
    """Elements of the flat `storage` before the first one of its view `integers`."""
    if not integers.size:
        return 0
    start, first = (array.__array_interface__["data"][0] for array in (storage, integers))
    return int(first - start) // storage.itemsize


def strided(storage: IntArray, size: Sequence[int], stride: Sequence[int], offset: int) -> IntArray:
    """y[i, j, ...] = storage[offset + i * stride[0] + j * stride[1] + ...]; a view.

    Read-only where several places of the result are one element of storage (a stride of 0).
    """
    if len(size) != len(stride):
        raise ShapeError(
            f"as_strided: sizes {tuple(size)}, strides {tuple(stride)}; wanted as many of both."
        )
    if min((*size, *stride, offset), default=0) < 0:
        raise ShapeError(
            f"as_strided: sizes {tuple(size)}, strides {tuple(stride)}, offset {offset}; "
            "wanted no negative numbers."
        )
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if math.prod(size) and last >= storage.size:
        raise ShapeError(
            f"as_strided: sizes {tuple(size)}, strides {tuple(stride)}, offset {offset} reach "
            f"element {last}; the tensor's memory has {storage.size}."
        )
    if not math.prod(size):
        return np.empty(size, storage.dtype)
    distinct = all(step > 0 or n == 1 for n, step in zip(size, stride, strict=True))
    return np.lib.stride_tricks.as_strided(
        storage[offset:], size, [step * storage.itemsize for step in stride], writeable=distinct
    )


def expanded(shape: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `sizes` means, -1 standing for a size that stays."""
    new = len(sizes) - len(shape)
    if new >= 0 and -1 not in sizes[:new]:
        wanted = tuple(
            old if n == -1 else n for n, old in zip(sizes, (1,) * new + shape, strict=True)
        )
        if all(n == old or old == 1 for n, old in zip(wanted[new:], shape, strict=True)):
            return wanted
    raise ShapeError(
        f"expand: a tensor of shape {shape} to {sizes}; wanted sizes as they are, or -1: only axes "
        "of size 1 grow, and new axes come first."
    )
