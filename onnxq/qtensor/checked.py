"""Guards of quantized tensors: a refusal says which function, what it got and wanted."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import ShapeError, UnsupportedError, kind_of
from onnxq.qparams import PerTensor, QParams


def float_array(op: str, x: object) -> npt.NDArray[np.float32]:
    """x, if it is a float32 array, or a float32 tensor of torch."""
    if not hasattr(x, "__array__") or getattr(x, "is_quantized", hasattr(x, "int_repr")):
        raise ShapeError(
            f"{op}: input is {kind_of(x)}; wanted a float32 array. "
            "Call numpy.asarray(x, numpy.float32), or dequantize() a quantized tensor, first."
        )
    array = detached(x)
    if array.dtype != np.float32:
        raise ShapeError(
            f"{op}: input has dtype {array.dtype}; wanted float32. "
            "Call input.astype(numpy.float32) first."
        )
    return array


def detached(x: object) -> npt.NDArray[Any]:
    """The array of x; a tensor of torch gives its values alone."""
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def numbers(op: str, name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """The values as an array. Raises ShapeError where they are no numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise ShapeError(f"{op}: {name} is {values!r}; wanted numbers.")
    return array


def one_number(op: str, name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
    """The value as an array of rank 0; PyTorch's observers give one number in a vector."""
    array = numbers(op, name, value)
    if array.size != 1:
        raise ShapeError(
            f"{op}: {name} has shape {array.shape}; wanted one number. "
            "Call quantize_per_channel for several."
        )
    return array.reshape(())


def qdtype(dtype: object) -> QDType:
    """The QDType, or that of its name; a torch.dtype is known by the name it prints."""
    return dtypes.find(dtype if isinstance(dtype, QDType) else str(dtype))


def need_per_tensor(op: str, qparams: QParams) -> None:
    """Passes qparams of one scale for all elements."""
    if qparams.granularity != PerTensor():
        raise UnsupportedError(
            f"{op}: the tensor is quantized with {qparams.granularity}; {op} works on per-tensor "
            "quantized tensors only. Call it on dequantize() or on int_repr()."
        )


@contextmanager
def shape_errors(op: str, shape: Sequence[int]) -> Iterator[None]:
    """Turns NumPy's refusals of shapes, axes and indices into a ShapeError that names both."""
    try:
        yield
    except (ValueError, IndexError, TypeError) as error:
        raise ShapeError(f"{op}: a tensor of shape {tuple(shape)}: {error}.") from error


def sizes_of(op: str, sizes: tuple[int | Sequence[int], ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence: f(2, 3) and f((2, 3))."""
    if len(sizes) == 1:
        return wholes(op, "size", sizes[0])
    return tuple(whole(op, "size", n) for n in sizes)


def whole(op: str, name: str, value: object) -> int:
    """The value as an int. Raises ShapeError where it is no whole number."""
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError as error:
        raise ShapeError(f"{op}: {name} is {value!r}; wanted a whole number.") from error


def wholes(op: str, name: str, values: object) -> tuple[int, ...]:
    """One whole number, or a sequence of them, as a tuple. Raises ShapeError for anything else."""
    if isinstance(values, Iterable):
        return tuple(whole(op, name, value) for value in values)
    return (whole(op, name, values),)
