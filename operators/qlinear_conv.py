"""Convolution of integers."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Case, IntegerCall, NodePlan, register_integer
from onnxq.operator.examples import integers, ints32, scales, shapes, zero
from onnxq.operator.integer_call import stored
from onnxq.operator.site import MICROSOFT
from onnxq.operators._pair_windows import conv_pairs
from onnxq.operators._pairs import PairedSums
from onnxq.operators._qlinear import channels_first, channels_last
from onnxq.operators.conv import Conv, quantized_conv
from onnxq.targets.accumulation import Accumulator, Pairs, SaturationMode


@register_integer
class QLinearConv(PairedSums):
    """Conv of integers: inputs x, x_scale, x_zp, w, w_scale, w_zp, y_scale, y_zp, bias (int32).

    ONNX QLinearConv-10 and com.microsoft, whose `channels_last` says that x and y are
    (N, *spatial, C). Arithmetic: see Conv.
    """

    op_type = "QLinearConv"
    domains = ("", MICROSOFT)
    weights = (3,)

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        x, w = call.operand(0, "x"), call.operand(3, "w")
        x_qparams = call.qparams("x", 1, call.qdtype(x, "x"))
        w_qparams = call.qparams("w", 4, call.qdtype(w, "w"), axis=0)
        y_qparams = call.output_qparams("y", 6)
        if y_qparams.dtype != x_qparams.dtype:
            raise call.shape_error(
                f"x is {x_qparams.dtype}, y {y_qparams.dtype}; they must be equal."
            )
        bias = call.optional(8)
        b_qparams = None if bias is None else call.bias_qparams(bias, x_qparams, w_qparams)
        plan = NodePlan((x_qparams, w_qparams, b_qparams), (y_qparams,))
        operands = (channels_first(call, x), w, bias)
        y = quantized_conv(call.planned(operands, plan), accumulator)
        return (channels_last(call, y),)

    def pairs(self, call: IntegerCall, saturation_mode: SaturationMode) -> Pairs | None:
        x, w, points = call.operand(0, "x"), call.operand(3, "w"), call.optional(5)
        symmetric, group = points is None or not points.any(), call.integer("group", 1)
        return conv_pairs(saturation_mode, x.dtype, stored(w), group, symmetric)

    def cases(self) -> Iterable[Case]:
        x, y = (scales(0.25), zero(7)), (scales(0.05), zero(0))
        weight, images = (scales(0.02), zero(0, "int8")), integers(2, 4, 7, 6)
        for case in Conv().cases():
            seen, kernel, *bias = shapes(case)
            operands = (integers(*seen), *x, integers(*kernel, dtype="int8", seed=1), *weight, *y)
            sums = [ints32(*range(-70, 70, 140 // size)[:size]) for (size,) in bias]
            fixed = tuple(range(1, 8 + len(sums)))
            yield Case(case.name, (*operands, *sums), fixed, case.attributes)
        channels = (scales(0.01, 0.02, 0.04), np.zeros(3, np.int8))
        signed = (scales(0.5), zero(-128, "int8"))
        kernel3 = integers(3, 4, 3, 3, dtype="int8", seed=1)
        sums3 = ints32(100, -70, 3)
        yield Case(
            "per-channel, bias", (images, *x, kernel3, *channels, *y, sums3), tuple(range(1, 9))
        )
        top = (integers(3, 4, 3, 3), scales(0.02), zero(255), scales(0.5), zero(255))
        yield Case("uint8 weight, zero point 255", (images, *x, *top), tuple(range(1, 8)))
        small = integers(1, 4, 5, 5, dtype="int8")
        apart = (small, *signed, integers(4, 1, 3, 3, dtype="int8"), *weight, *signed)
        yield Case("int8, depthwise", apart, tuple(range(1, 8)), {"group": 4})
