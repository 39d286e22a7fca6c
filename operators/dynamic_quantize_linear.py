"""Reals to integers, with a scale from the tensor itself."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize
from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, register_integer
from onnxq.operator.examples import normal
from onnxq.qparams import QParams, per_tensor


@register_integer
class DynamicQuantizeLinear(IntegerOperator):
    """y, y_scale, y_zero_point of x, to uint8; ONNX DynamicQuantizeLinear-11.

    low = min(0, min x), high = max(0, max x), scale = (high - low) / 255,
    zero_point = saturate(rint(-low / scale)), y = saturate(rint(x / scale) + zero_point).
    All of 0, or nothing at all: scale 1 (the text of ONNX gives 1 / 255 and 0).
    """

    op_type = "DynamicQuantizeLinear"

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Integers of y, its scale and its zero point."""
        x = call.operand(0, "x")
        qparams = dynamic_qparams(call.op_type, x)
        y = quantize(np.asarray(x, np.float32), qparams)
        return y, np.array(qparams.scale), np.array(qparams.zero_point)

    def cases(self) -> Iterable[Case]:
        yield Case("both signs", (normal(7, 9),), outputs=3)
        yield Case("positive", (np.abs(normal(5)) + 1,), outputs=3)
        yield Case("negative", (-np.abs(normal(5)) - 1,), outputs=3)
        yield Case("ties", (np.arange(-255, 256, dtype=np.float32) / 2,), outputs=3)
        yield Case("zeros", (np.zeros((2, 3), np.float32),), outputs=3)
        yield Case("constant", (np.full((2, 3), 7, np.float32),), outputs=3)
        yield Case("subnormal scale", (np.array([1e-37, -1e-37], np.float32),), outputs=3)
        yield Case("empty", (normal(0, 3),), outputs=3)
        yield Case("rank 0", (np.array(-3, np.float32),), outputs=3)


def dynamic_qparams(op_type: str, x: Array) -> QParams:
    """Per-tensor uint8 QParams that cover x and 0."""
    if x.dtype != np.float32:
        raise ShapeError(f"{op_type}: input 0 has dtype {x.dtype}; wanted float32.")
    values: npt.NDArray[np.float32] = np.asarray(x, np.float32)
    low, high = values.min(initial=0), values.max(initial=0)
    if low == high:
        return per_tensor(1.0, 0, UINT8)
    with np.errstate(all="ignore"):
        scale = np.float32(np.float32(high - low) / np.float32(255))
    if not (np.isfinite(scale) and scale > 0):
        raise UnsupportedError(
            f"{op_type}: values from {low:g} to {high:g} give the scale {scale:g}, with which ONNX "
            "Runtime computes nothing of use; look for NaN, Inf or overflow in what comes before."
        )
    zero_point = quantize(np.asarray(-low), per_tensor(scale, 0, UINT8))
    return per_tensor(scale, int(zero_point), UINT8)
