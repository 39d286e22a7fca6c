from __future__ import annotations

import numpy as np

from onnxq.operator import Case, Form
from tests.operators import builder

OP = builder.operator("GatherND")


def test_onnx_runtime_has_the_kernel_but_no_fusion() -> None:
    case = Case("", (np.zeros((2, 2), np.float32), np.array([[0, 1]])), (1,))
    assert builder.rule_of(OP, case).form is Form.CODES
