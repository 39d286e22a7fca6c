from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Call, NodePlan
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, codes, copied

OP = builder.operator("Identity")


def test_result_is_a_copy() -> None:
    x = codes(2, 3)
    (y,) = copied(OP, x)
    assert np.array_equal(x, y)
    assert not np.shares_memory(x, y)


def test_kernel_refuses_to_copy_codes_between_different_qparams() -> None:
    plan = NodePlan((SHARED,), (per_tensor(0.25, 7, UINT8),))
    with pytest.raises(ShapeError, match="equal qparams"):
        OP.kernel(Call(OP.op_type, [codes(2, 3)], plan))
