"""Convolutions and linear layers: uint8 activations, int8 weights, int32 sums."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize
from onnxq.dtypes import INT32, QDType, qint8, quint8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional.calls import call, check_input, check_rank, per_axis, result_qparams
from onnxq.operator import AttributeValue
from onnxq.qparams import PerChannel, PerTensor, QParams, sum_scale
from onnxq.qtensor.checked import float_array, qdtype, whole
from onnxq.qtensor.tensor import QTensor, check_tensor

AXES = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}
Bias = npt.NDArray[np.float32] | None


class _Steps(NamedTuple):
    stride: int | Sequence[int]
    padding: int | Sequence[int]
    dilation: int | Sequence[int]
    groups: int
    padding_mode: str


def conv1d(
    input: QTensor,
    weight: QTensor,
    bias: Bias,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: QDType | str = quint8,
) -> QTensor:
    """Convolution of (N, C, L) by (O, C / groups, K). Arguments and errors as `conv2d`."""
    steps = _Steps(stride, padding, dilation, groups, padding_mode)
    return _convolve(1, (input, weight, bias), steps, (scale, zero_point, dtype))


def conv2d(
    input: QTensor,
    weight: QTensor,
    bias: Bias,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: QDType | str = quint8,
) -> QTensor:
    """Convolution of (N, C, H, W) by (O, C / groups, KH, KW); ONNX QLinearConv.

    saturate(rint((sum (x - x_zp) (w - w_zp) + b) * x_scale * w_scale / scale) + zero_point) with
    b = rint(bias / (x_scale * w_scale)) in int32, as the deployed model has it.

    Args:
        input: quint8, per-tensor.
        weight: qint8, per-tensor or per-channel along axis 0.
        bias: float32 (O,), or None.
        stride: between windows, one number or one per axis.
        padding: zeros on both sides, likewise.
        dilation: between taps, likewise.
        groups: divides C and O.
        padding_mode: "zeros".
        scale: of the result, positive.
        zero_point: of the result.
        dtype: of the result: quint8.
    Raises:
        ShapeError: shapes do not fit together, no QTensors, scale or zero_point is out of range.
        UnsupportedError: other dtypes, scales or padding than these; a bias beyond int32.
    """
    steps = _Steps(stride, padding, dilation, groups, padding_mode)
    return _convolve(2, (input, weight, bias), steps, (scale, zero_point, dtype))


def conv3d(
    input: QTensor,
    weight: QTensor,
    bias: Bias,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
    scale: float = 1.0,
    zero_point: int = 0,
    dtype: QDType | str = quint8,
) -> QTensor:
    """Convolution of (N, C, D, H, W) by (O, C / groups, KD, KH, KW). As `conv2d`."""
    steps = _Steps(stride, padding, dilation, groups, padding_mode)
    return _convolve(3, (input, weight, bias), steps, (scale, zero_point, dtype))


def _convolve(
    rank: int,
    operands: tuple[QTensor, QTensor, Bias],
    steps: _Steps,
    result: tuple[float, int, QDType | str],
) -> QTensor:
    op = f"conv{rank}d"
    x, w = _checked_pair(op, operands[0], operands[1])
    check_rank(op, x, [rank + 2], AXES[rank])
    if steps.padding_mode != "zeros":
        raise UnsupportedError(
            f"{op}: padding_mode is '{steps.padding_mode}'; wanted 'zeros'. Pad the input first."
        )
    scale, zero_point, dtype = result
    if qdtype(dtype) != quint8:
        raise UnsupportedError(f"{op}: dtype is {dtype}; results are quint8.")
    strides = per_axis(op, "stride", steps.stride, rank)
    dilations = per_axis(op, "dilation", steps.dilation, rank)
    pads = per_axis(op, "padding", steps.padding, rank)
    groups = whole(op, "groups", steps.groups)
    numbers = [*strides, *dilations, groups]
    if min(numbers) < 1:
        raise ShapeError(f"{op}: stride, dilation and groups are {numbers}; wanted 1 or more.")
    if min(pads) < 0:
        raise ShapeError(f"{op}: padding is {pads}; wanted 0 or more. Slice the input instead.")
    attributes: dict[str, AttributeValue] = {
        "kernel_shape": list(w.shape[2:]),
        "strides": strides,
        "dilations": dilations,
        "pads": pads * 2,
        "group": groups,
    }
    output = result_qparams(x, scale, zero_point)
    return call("Conv", [x, w, _integer_bias(op, operands[2], x, w)], output, attributes)


def linear(
    input: QTensor,
    weight: QTensor,
    bias: Bias = None,
    scale: float | None = None,
    zero_point: int | None = None,
) -> QTensor:
    """Y = input @ weight.T + bias; com.microsoft QGemm. Sums and bias as in `conv2d`.

    Args:
        input: quint8 (..., in_features) of rank 2 or more, per-tensor.
        weight: qint8 (out_features, in_features), per-tensor or per-channel along axis 0.
        bias: float32 (out_features,), or None.
        scale: of the result, positive; None: the input's.
        zero_point: of the result; None: the input's.
    Returns:
        quint8 (..., out_features).
    Raises:
        ShapeError: shapes do not fit together, no QTensors, scale or zero_point is out of range.
        UnsupportedError: other dtypes or scales than these; a bias beyond int32.
    """
    x, w = _checked_pair("linear", input, weight)
    if x.ndim < 2 or w.ndim != 2 or x.shape[-1] != w.shape[1]:
        raise ShapeError(
            f"linear: input {x.shape}, weight {w.shape}; wanted (..., in) and (out, in)."
        )
    rows = QTensor(x.int_repr().reshape(-1, x.shape[-1]), x.qparams)
    bias_integers = _integer_bias("linear", bias, x, w)
    output = result_qparams(x, scale, zero_point)
    y = call("Gemm", [rows, w, bias_integers], output, {"transB": 1})
    return y.view(*x.shape[:-1], w.shape[0])


def _checked_pair(op: str, x: QTensor, w: QTensor) -> tuple[QTensor, QTensor]:
    """Raises UnsupportedError but for per-tensor quint8 with qint8 that has a scale per row."""
    check_input(op, x)
    check_tensor(op, w, "weight")
    if x.dtype != quint8 or w.dtype != qint8:
        raise UnsupportedError(
            f"{op}: input is {x.dtype}, weight {w.dtype}; wanted quint8 and qint8, as PyTorch "
            "documents. The operators' kernels take more: onnxq.catalog."
        )
    if w.qparams.granularity not in (PerTensor(), PerChannel(0)):
        raise UnsupportedError(
            f"{op}: weight is quantized with {w.qparams.granularity}; wanted per-tensor, or "
            "per-channel along axis 0, the outputs."
        )
    return x, w


def _integer_bias(op: str, bias: Bias, x: QTensor, w: QTensor) -> QTensor | None:
    """rint(bias / (x_scale * w_scale)), int32 (outputs,)."""
    if bias is None:
        return None
    b = float_array(op, bias)
    if b.shape != w.shape[:1]:
        raise ShapeError(
            f"{op}: bias has shape {b.shape}, weight {w.shape}; wanted one per output."
        )
    scale = sum_scale(x.qparams, w.qparams)
    if (np.abs(b.astype(np.float64) / scale) > INT32.qmax).any() or not np.isfinite(b).all():
        raise UnsupportedError(
            f"{op}: a bias is beyond int32 at input scale * weight scale, or not finite. "
            "Raise the weight's scale in that channel."
        )
    granularity = PerChannel(0) if scale.ndim else PerTensor()
    qparams = QParams(scale, np.zeros(scale.shape, np.int32), INT32, granularity)
    return QTensor(quantize(b, qparams), qparams)
