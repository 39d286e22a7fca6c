"""Normalization by fixed statistics: an affine function per channel."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import requantize
from onnxq.dtypes import INT8, INT32
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, shape
from onnxq.operators._normalize import EPSILON
from onnxq.qparams import MAX_BIAS_INTEGER, MIN_SCALE, PerChannel, QParams

PARAMETERS = {1: "scale", 2: "B", 3: "mean", 4: "var"}
RANKS = (3, 4, 5)


@op.register
class BatchNormalization(op.Operator):
    """Y = (X - mean) / sqrt(var + epsilon) * scale + B per channel; ONNX BatchNormalization-15.

    At inference, ranks 3 to 5; what a convolution writes was folded into it before. Integers: a
    depthwise QLinearConv of one tap. With slope = scale / sqrt(var + epsilon) its weight is +-127
    at |slope| / 127, so that it has no error, and its bias B - mean * slope: requantize((x - x_zp)
    * +-127 + b, x_scale * |slope| / 127 / y_scale).

    Float time over that of the integers, between two quantized 1x1 convolutions, one thread,
    AVX512-VNNI: 1.13 to 1.71 for 2 axes (32 to 512 channels, 28x28 and 7x7), 1.3 for one, 0.5 to
    0.8 for three.
    """

    op_type = "BatchNormalization"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """One affine function per channel, of constants."""
        if node.attributes.get_int("training_mode", 0) or len(node.outputs) > 1:
            return op.Float.because("it computes statistics of its input (training mode)")
        values = [constant(node, slot) for slot in PARAMETERS]
        for name, value in zip(PARAMETERS.values(), values, strict=True):
            if value is None:
                return op.Float.because(f"its {name} is computed at run time; a constant is needed")
        x = shape(node, 0)
        if x is None or len(x) not in RANKS:
            return op.Float.because(f"its input has shape {x}; wanted 1 to 3 spatial axes")
        slope, offset = _affine([v for v in values if v is not None], _epsilon(node))
        if not (np.isfinite(slope).all() and np.isfinite(offset).all()):
            return op.Float(
                op.InfiniteOperand("its variance or another constant gives NaN or infinity")
            )
        slow = "ONNX Runtime runs it on three spatial axes in integers at 0.5 to 0.8 of float speed"
        return op.Rule(
            op.OpCategory.ELEMENTWISE, lowered=True, named_only=slow if len(x) == max(RANKS) else ""
        )

    def cases(self) -> Iterable[op.Case]:
        constants = (1, 2, 3, 4)
        parameters = _parameters(4)
        yield op.Case("plain", (normal(2, 4, 5, 6), *parameters), constants)
        yield op.Case("1d", (normal(2, 4, 9), *parameters), constants, {"epsilon": 0.5})
        yield op.Case("3d", (normal(2, 4, 3, 2, 5), *parameters), constants)
        gamma, beta, mean, var = parameters
        zero = gamma * np.array([0, 1, 0, -1], np.float32)
        flat = beta * np.array([0, 1, 1, 1], np.float32)
        yield op.Case("slopes of 0", (normal(2, 4, 5, 6), zero, flat, 0 * mean, var), constants)
        tiny = gamma * np.float32(1e-12)
        yield op.Case(
            "offsets beyond int32", (normal(2, 4, 5, 6), tiny, beta, mean, var), constants
        )
        yield op.Case("one channel", (normal(2, 1, 5, 6), *_parameters(1)), constants)
        yield op.Case("empty batch", (normal(0, 4, 5, 6), *parameters), constants)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """Depthwise QLinearConv with a kernel of one."""
        x, y = site.qparams_in(0), site.qparams_out()
        parameters = [constant(site.node, slot) for slot in PARAMETERS]
        slope, offset = _affine([p for p in parameters if p is not None], _epsilon(site.node))
        w, weight, bias = _integers(slope, offset, x)
        spatial = len(shape(site.node, 0) or ()) - 2
        replace(site, plan=op.NodePlan((x, w), site.plan.outputs)).check_pair()
        slots = [
            site.inputs[0],
            *site.scale_and_zero_point("x", x),
            site.initializer("w", weight.reshape(-1, 1, *[1] * spatial), INT8),
            *site.scale_and_zero_point("w", w),
            *site.scale_and_zero_point("y", y),
            site.initializer("b", bias, INT32),
        ]
        return site.emit(slots, op_type="QLinearConv", attributes={"group": len(weight)})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        parameters = [call.plain(slot) for slot in PARAMETERS]
        if x.ndim not in RANKS or any(v.shape != x.shape[1:2] for v in parameters):
            raise call.shape_error(
                f"x {x.shape}, parameters {[v.shape for v in parameters]}; "
                "wanted (N, C, *spatial) and (C,) each."
            )
        slope, offset = _affine(parameters, call.real("epsilon", EPSILON))
        w, weight, bias = _integers(slope, offset, p)
        along = (-1, *[1] * (x.ndim - 2))
        centred = x.astype(np.int32) - p.zero_point.astype(np.int32)
        total = centred * weight.astype(np.int32).reshape(along) + bias.reshape(along)
        multiplier = p.scale * w.scale / q.scale
        return (requantize(total, np.asarray(multiplier).reshape(along), q),)


def _affine(parameters: Sequence[op.Array], epsilon: float) -> tuple[op.Reals, op.Reals]:
    """(slope, offset) per channel of scale, B, mean, var: Y = slope * X + offset."""
    gamma, beta, mean, var = (np.asarray(p, np.float64) for p in parameters)
    with np.errstate(all="ignore"):
        slope = gamma / np.sqrt(var + epsilon)
        return slope, beta - mean * slope


def _integers(
    slope: op.Reals, offset: op.Reals, x: QParams
) -> tuple[QParams, npt.NDArray[np.int8], npt.NDArray[np.int32]]:
    """(weight's qparams, weight, bias): int8 and int32, (channels,).

    The weight is +-127, but where the bias would leave int32 at that scale.
    """
    x_scale = np.float64(x.scale)
    needed = np.abs(offset) / (x_scale * MAX_BIAS_INTEGER)
    scale = np.maximum(np.abs(slope) / INT8.qmax, needed)
    scale = np.where(scale > 0, np.maximum(scale, MIN_SCALE), 1.0).astype(np.float32)
    weight = np.rint(slope / scale).astype(np.int8)
    bias = np.rint(offset / (x_scale * scale)).astype(np.int32)
    w = QParams(scale, np.zeros(scale.shape, np.int8), INT8, PerChannel(0))
    return w, weight, bias


def _epsilon(node: ir.Node) -> float:
    return node.attributes.get_float("epsilon", EPSILON)


def _parameters(channels: int) -> tuple[op.Singles, op.Singles, op.Singles, op.Singles]:
    """scale, B, mean and var of a case."""
    gamma, beta, mean = (normal(channels, seed=seed) for seed in (1, 2, 3))
    return gamma, beta, mean, np.square(normal(channels, seed=4)) + np.float32(0.1)
