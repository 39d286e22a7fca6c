"""Convolution of integers, to int32."""

from collections.abc import Iterable

import numpy as np

from onnxq import operator as op
from onnxq.operator.examples import integers, shapes, zero
from onnxq.operator.integer_call import stored
from onnxq.operators._gemm import centred
from onnxq.operators._pair_windows import conv_integer_correction, conv_integer_risks
from onnxq.operators._windows import geometry
from onnxq.operators.conv import Conv, check_shapes, convolve
from onnxq.targets.accumulation import EXACT, Accumulator, Overflows, SaturationMode


@op.register_integer
class ConvInteger(op.IntegerOperator):
    """Y = sum_{c, k} (X - x_zp)[n, c, p * stride + k * dilation - pad] (W - w_zp)[o, c, k], int32.

    ONNX ConvInteger-10: inputs x, w, x_zero_point, w_zero_point; each of x and w is uint8 or int8;
    modulo 2^32; padding is x_zp. ONNX Runtime 1.31 refuses one w_zp per output channel.
    """

    op_type = "ConvInteger"
    weights = (1,)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        return self.kernel_on(call, EXACT)

    def kernel_on(self, call: op.IntegerCall, accumulator: Accumulator) -> tuple[op.Array, ...]:
        x, w = call.operand(0, "x"), call.operand(1, "w")
        one = np.ones((), np.float32)
        x_qparams = call.qparams_of("x", one, call.optional(2), call.qdtype(x, "x"))
        points = call.optional(3)
        ones = np.ones(1 if points is None else points.size, np.float32)
        w_qparams = call.qparams_of("w", ones, points, call.qdtype(w, "w"), axis=0)
        if ones.size not in (1, w.shape[0] if w.ndim else 0):
            raise call.shape_error(
                f"w_zero_point has {ones.size} numbers; w of shape {w.shape} wants "
                "1, or one per output channel."
            )
        check_shapes(call, x.shape, w.shape)
        windows = geometry(call, x.shape[2:], w.shape[2:])
        left, right = centred(stored(x), x_qparams), centred(stored(w), w_qparams)
        group = call.integer("group", 1)
        total = convolve(left, right, group, windows)
        if not accumulator.exact:
            change = conv_integer_correction(
                stored(x), int(x_qparams.zero_point), stored(w), group, windows, accumulator
            )
            total = total if change is None else np.asarray(total + change)
        return (total,)

    def risks(self, call: op.IntegerCall, saturation_mode: SaturationMode) -> Overflows | None:
        """Pairs of constant weights that leave int16."""
        x, w = call.operand(0, "x"), call.operand(1, "w")
        return conv_integer_risks(saturation_mode, x.dtype, stored(w))

    def cases(self) -> Iterable[op.Case]:
        extremes = {"uint8": 255, "int8": -128}
        for left, x_zp in extremes.items():
            for right, w_zp in extremes.items():
                yield op.Case(
                    f"{left} by {right}, pads",
                    (
                        integers(2, 4, 6, 5, dtype=left),
                        integers(3, 4, 3, 3, dtype=right, seed=1),
                        zero(x_zp, left),
                        zero(w_zp, right),
                    ),
                    (2, 3),
                    {"pads": [1, 0, 2, 1]},
                )
        for case in Conv().cases():
            seen, kernel, *_ = shapes(case)
            operands = (integers(*seen), integers(*kernel, dtype="int8", seed=1))
            points = (zero(7), zero(3, "int8"))
            yield op.Case(case.name, (*operands, *points), (2, 3), case.attributes)
        x, w = integers(2, 4, 7, 6), integers(6, 2, 3, 2, dtype="int8", seed=1)
        yield op.Case("no zero points, groups", (x, w), (), {"group": 2})
        depthwise = integers(4, 1, 3, 3, dtype="int8")
        yield op.Case(
            "no zero point of x", (x, depthwise, None, zero(-7, "int8")), (3,), {"group": 4}
        )
