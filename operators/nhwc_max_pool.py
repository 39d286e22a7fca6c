"""Maximum of integers over windows, channels last."""

from collections.abc import Iterable

import numpy as np

from onnxq import operator as op
from onnxq.operator.examples import integers
from onnxq.operator.site import MICROSOFT
from onnxq.operators.max_pool import MaxPool
from onnxq.qparams import per_tensor


@op.register_integer
class NhwcMaxPool(op.IntegerOperator):
    """MaxPool of integers (N, *spatial, C); com.microsoft. It has no scale: see MaxPool."""

    op_type = "NhwcMaxPool"
    domains = (MICROSOFT,)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        x = call.operand(0, "x")
        if x.ndim < 3:
            raise call.shape_error(f"x {x.shape}; wanted (N, *spatial, C).")
        plain = per_tensor(1.0, 0, call.qdtype(x, "x"))
        first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
        (y,) = MaxPool().kernel(call.planned([first], op.NodePlan((plain,), (plain,))))
        return (np.ascontiguousarray(np.moveaxis(y, 1, -1)),)

    def cases(self) -> Iterable[op.Case]:
        x = integers(2, 7, 6, 3)
        pads: dict[str, op.AttributeValue] = {
            "kernel_shape": [3, 3],
            "pads": [1, 0, 2, 1],
            "strides": [2, 3],
        }
        yield op.Case("plain", (x,), (), {"kernel_shape": [2, 3]})
        yield op.Case("asymmetric pads, stride", (x,), (), pads)
        yield op.Case("ceil_mode", (x,), (), {**pads, "ceil_mode": 1})
        yield op.Case("dilation", (x,), (), {"kernel_shape": [3, 2], "dilations": [2, 3]})
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield op.Case(
                mode, (x,), (), {"kernel_shape": [4, 2], "auto_pad": mode, "strides": [2, 1]}
            )
        signed = integers(2, 9, 5, dtype="int8")
        yield op.Case("1d, int8", (signed,), (), {"kernel_shape": [3], "pads": [1, 1]})
        yield op.Case("3d", (integers(1, 4, 5, 4, 2),), (), {"kernel_shape": [2, 3, 2]})
        yield op.Case("empty batch", (integers(0, 7, 6, 3),), (), {"kernel_shape": [2, 2]})
