"""Element-wise functions of one tensor."""

import numpy as np

from onnxq.affine import dequantize, quantize
from onnxq.errors import ShapeError
from onnxq.functional.calls import call, check_input, real, result_qparams
from onnxq.qparams import per_tensor
from onnxq.qtensor import QTensor


def relu(input: QTensor, inplace: bool = False) -> QTensor:
    """max(x, 0), with the input's qparams; ONNX Relu.

    Args:
        input: any shape and integer type.
        inplace: whether the result is written to the input, which is returned.
    Raises:
        ShapeError: input is no QTensor.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("relu", input)
    return _into(x, inplace, call("Relu", [x], x.qparams))


def relu_(input: QTensor) -> QTensor:
    """`relu`, written to the input, which is returned. Raises as `relu`."""
    return relu(input, inplace=True)


def elu(input: QTensor, scale: float, zero_point: int, alpha: float = 1.0) -> QTensor:
    """max(x, 0) + min(alpha (exp(x) - 1), 0); ONNX Elu.

    Args:
        input: any shape and integer type.
        scale: of the result, positive.
        zero_point: of the result.
        alpha: limit of the negative part.
    Raises:
        ShapeError: input is no QTensor, or scale or zero_point is out of range,
            or alpha is no number.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("elu", input)
    return call(
        "Elu", [x], result_qparams(x, scale, zero_point), {"alpha": real("elu", "alpha", alpha)}
    )


def hardsigmoid(input: QTensor, inplace: bool = False) -> QTensor:
    """min(max(x + 3, 0), 6) / 6, on the scale 2^-bits that spans 0 to 1; ONNX HardSigmoid.

    Args:
        input: any shape, 8 bits.
        inplace: whether the result is written to the input, which is returned.
    Returns:
        scale 2^-bits, zero point qmin, the input's dtype and shape.
    Raises:
        ShapeError: input is no QTensor.
        UnsupportedError: input is quantized per channel, or has more than 8 bits.
    """
    x = check_input("hardsigmoid", input)
    output = per_tensor(2.0**-x.dtype.bits, x.dtype.qmin, x.dtype)
    return _into(x, inplace, call("HardSigmoid", [x], output, {"alpha": 1 / 6, "beta": 0.5}))


def hardswish(input: QTensor, scale: float, zero_point: int) -> QTensor:
    """Y = x * min(max(x + 3, 0), 6) / 6, rounded once.

    Models that `quantize` writes round the gate too (operators/hard_swish.py).

    Args:
        input: any shape and integer type.
        scale: of the result, positive.
        zero_point: of the result.
    Raises:
        ShapeError: input is no QTensor, or scale or zero_point is out of range.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("hardswish", input)
    output = result_qparams(x, scale, zero_point)
    reals = dequantize(x.int_repr(), x.qparams).astype(np.float64)
    swish = reals * np.clip(reals / 6 + 0.5, 0, 1)
    return QTensor(quantize(swish.astype(np.float32), output), output)


def hardtanh(
    input: QTensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> QTensor:
    """min(max(x, min_val), max_val), with the input's qparams; ONNX Clip.

    The bounds are rounded to the nearest integers.

    Args:
        input: any shape and integer type.
        min_val: lower bound.
        max_val: upper bound, not below min_val.
        inplace: whether the result is written to the input, which is returned.
    Raises:
        ShapeError: input is no QTensor, or the bounds are in the wrong order.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("hardtanh", input)
    low, high = real("hardtanh", "min_val", min_val), real("hardtanh", "max_val", max_val)
    if low > high:
        raise ShapeError(f"hardtanh: min_val {min_val} is above max_val {max_val}; exchange them.")
    bounds = [np.asarray(bound, np.float32) for bound in (low, high)]
    return _into(x, inplace, call("Clip", [x, *bounds], x.qparams))


def clamp(input: QTensor, min_: float, max_: float) -> QTensor:
    """min(max(x, min_), max_): `hardtanh` with bounds that have to be said."""
    return hardtanh(input, min_, max_)


def leaky_relu(
    input: QTensor,
    negative_slope: float = 0.01,
    inplace: bool = False,
    scale: float | None = None,
    zero_point: int | None = None,
) -> QTensor:
    """max(x, 0) + negative_slope min(x, 0); ONNX LeakyRelu.

    Args:
        input: any shape and integer type.
        negative_slope: factor of what is negative.
        inplace: whether the result is written to the input, which is returned; with the input's
            qparams alone.
        scale: of the result, positive; None: the input's qparams.
        zero_point: of the result.
    Raises:
        ShapeError: input is no QTensor; one of scale and zero_point alone, or out of range, or
            with inplace.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("leaky_relu", input)
    slope = real("leaky_relu", "negative_slope", negative_slope)
    if (scale is None) != (zero_point is None) or (inplace and scale is not None):
        raise ShapeError(
            f"leaky_relu: got scale {scale}, zero_point {zero_point}, inplace {inplace}; wanted "
            "both numbers, or neither of them, as inplace does."
        )
    output = x.qparams
    if scale is not None and zero_point is not None:
        output = result_qparams(x, scale, zero_point)
    return _into(x, inplace, call("LeakyRelu", [x], output, {"alpha": slope}))


def celu(input: QTensor, scale: float, zero_point: int, alpha: float = 1.0) -> QTensor:
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0); ONNX Celu.

    Args:
        input: any shape and integer type.
        scale: of the result, positive.
        zero_point: of the result.
        alpha: limit of the negative part, and how far it bends.
    Raises:
        ShapeError: input is no QTensor, or scale or zero_point is out of range,
            or alpha is no number.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("celu", input)
    output = result_qparams(x, scale, zero_point)
    return call("Celu", [x], output, {"alpha": real("celu", "alpha", alpha)})


def threshold(input: QTensor, threshold: float, value: float) -> QTensor:
    """The input where it is above the threshold, else value, with the input's qparams.

    The value is rounded to an integer.

    Args:
        input: any shape and integer type.
        threshold: what is replaced is at most this.
        value: what replaces it.
    Raises:
        ShapeError: input is no QTensor, or the others are no numbers.
        UnsupportedError: input is quantized per channel.
    """
    x = check_input("threshold", input)
    limit, other = (
        real("threshold", k, v) for k, v in (("threshold", threshold), ("value", value))
    )
    is_above = dequantize(x.int_repr(), x.qparams) > limit
    replaced = quantize(np.asarray(other, np.float32), x.qparams)
    return QTensor(np.where(is_above, x.int_repr(), replaced), x.qparams)


def _into(x: QTensor, inplace: bool, result: QTensor) -> QTensor:
    return x.copy_(result) if inplace else result
