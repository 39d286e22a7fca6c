"""Quantized tensors from float arrays, and empty ones that results are written to."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize
from onnxq.core.atomic import write_atomically
from onnxq.dtypes import QDType
from onnxq.errors import ModelError, OnnxqError, ShapeError
from onnxq.qparams import PerChannel, QParams
from onnxq.qtensor.checked import float_array, numbers, one_number, qdtype, whole, wholes
from onnxq.qtensor.tensor import QTensor, check_tensor


def quantize_per_tensor(
    input: npt.NDArray[np.float32],
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    dtype: QDType | str,
) -> QTensor:
    """saturate(rint(input / scale) + zero_point), with one scale for the tensor.

    This is ONNX QuantizeLinear, to the bit. PyTorch computes rint(input * (1 / scale) + zero_point)
    instead: exact ties come out one LSB apart where zero_point is odd.

    Args:
        input: float32, any shape.
        scale: positive; kept as float32, as in an ONNX file.
        zero_point: a whole number that dtype holds.
        dtype: quint8, qint8, qint32, or any integer type of onnxq.dtypes, by value or name.
    Raises:
        ShapeError: input is not float32; scale or zero_point is out of range, or not one number.
        QConfigError: dtype is not known.
        UnsupportedError: dtype is no integer type.
    """
    x = float_array("quantize_per_tensor", input)
    qparams = _affine("quantize_per_tensor", scale, zero_point, dtype)
    return QTensor(quantize(x, qparams), qparams)


quantize_linear = quantize_per_tensor
"""The name that `quantize_per_tensor` had before PyTorch 1.3."""


def quantize_per_channel(
    input: npt.NDArray[np.float32],
    scales: npt.ArrayLike,
    zero_points: npt.ArrayLike,
    axis: int,
    dtype: QDType | str,
) -> QTensor:
    """saturate(rint(input / scales[c]) + zero_points[c]), c being the index along axis.

    Args:
        input: float32, any shape of rank 1 or more.
        scales: (input.shape[axis],), positive; kept as float32.
        zero_points: as many whole numbers that dtype holds.
        axis: 0 to rank - 1.
        dtype: as for `quantize_per_tensor`.
    Raises:
        ShapeError: input is not float32, axis is out of range, not one scale and zero point per
            channel, or one that is out of range.
        QConfigError: dtype is not known.
        UnsupportedError: dtype is no integer type.
    """
    op = "quantize_per_channel"
    x = float_array(op, input)
    _check_axis(op, axis, x.ndim)
    points = numbers(op, "zero_points", zero_points)
    qparams = QParams(numbers(op, "scales", scales), points, qdtype(dtype), PerChannel(axis))
    return QTensor(quantize(x, qparams), qparams)


def _empty_affine_quantized(
    size: Sequence[int] | int = (0,),
    *,
    scale: npt.ArrayLike = 1.0,
    zero_point: npt.ArrayLike = 0,
    dtype: QDType | str,
) -> QTensor:
    """A tensor of that size for `out=`: it says which scale, zero point and dtype a result gets.

    Its elements are 0 (every integer is zero_point), where PyTorch's are whatever was in memory.

    Args:
        size: default: no elements; `out=` gives it the result's size.
        scale: positive.
        zero_point: a whole number that dtype holds.
        dtype: as for `quantize_per_tensor`.
    """
    qparams = _affine("_empty_affine_quantized", scale, zero_point, dtype)
    return QTensor(np.full(_checked(size), qparams.zero_point, qparams.dtype.storage), qparams)


def _empty_per_channel_affine_quantized(
    size: Sequence[int],
    *,
    scales: npt.ArrayLike,
    zero_points: npt.ArrayLike,
    axis: int,
    dtype: QDType | str,
) -> QTensor:
    """Empty tensor with a scale and zero point per index along axis; its integers are not set."""
    op = "_empty_per_channel_affine_quantized"
    _check_axis(op, axis, len(size))
    points = numbers(op, "zero_points", zero_points)
    qparams = QParams(numbers(op, "scales", scales), points, qdtype(dtype), PerChannel(axis))
    along = [-1 if i == axis else 1 for i in range(len(size))]
    empty = np.zeros(_checked(size), qparams.dtype.storage)
    if qparams.scale.size != empty.shape[axis]:
        raise ShapeError(
            f"{op}: {qparams.scale.size} scales for size {size}; "
            f"wanted {empty.shape[axis]} along axis {axis}."
        )
    return QTensor(empty + qparams.zero_point.reshape(along), qparams)


def _affine(
    op: str, scale: npt.ArrayLike, zero_point: npt.ArrayLike, dtype: QDType | str
) -> QParams:
    numbers = one_number(op, "scale", scale), one_number(op, "zero_point", zero_point)
    return QParams(*numbers, qdtype(dtype))


def _checked(size: Sequence[int] | int) -> tuple[int, ...]:
    sizes = wholes("_empty_affine_quantized", "size", size)
    if min(sizes, default=0) < 0:
        raise ShapeError(f"_empty_affine_quantized: size is {sizes}; wanted no negative numbers.")
    return sizes


def _check_axis(op: str, axis: int, rank: int) -> None:
    """Raises ShapeError for an axis outside 0..rank-1; PyTorch refuses negative ones too."""
    if not 0 <= whole(op, "axis", axis) < rank:
        raise ShapeError(f"{op}: axis is {axis}; an array of rank {rank} wants 0 to {rank - 1}.")


# --- Quantized tensors on disk: an npz of the integers and their qparams


DAMAGED = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, OnnxqError)
"""Errors that reading a truncated or altered npz or its JSON raises."""


def save(tensor: QTensor, path: str | Path) -> None:
    """Writes the tensor to path, whole or not at all.

    Raises:
        ShapeError: tensor is no QTensor.
        OutputError: the file cannot be written; an old one stays, and nothing is left behind.
    """
    check_tensor("save", tensor, "tensor")
    integers = tensor.int_repr()
    qparams = np.frombuffer(json.dumps(tensor.qparams.to_dict()).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, integers=integers, qparams=qparams))


def load(path: str | Path) -> QTensor:
    """The tensor that `save` wrote.

    Raises:
        ModelError: there is no such file, or it is damaged or none of `save`.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            qparams = QParams.from_dict(json.loads(arrays["qparams"].tobytes()))
            return QTensor(arrays["integers"], qparams)
    except DAMAGED as error:
        raise ModelError(
            f"load: '{path}' cannot be read as a quantized tensor ({type(error).__name__}: "
            f"{error}). Give a file that onnxq.qtensor.save wrote."
        ) from error
