"""Maximum of integers over windows, channels last."""

from collections.abc import Iterable

import numpy as np

from onnxq import operator as op
from onnxq.operator.examples import integers, shapes
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
        for case in MaxPool().cases():
            ((batch, channels, *spatial),) = shapes(case)
            yield op.Case(case.name, (integers(batch, *spatial, channels),), (), case.attributes)
        signed = integers(2, 9, 5, dtype="int8")
        yield op.Case("int8", (signed,), (), {"kernel_shape": [3], "pads": [1, 1]})
