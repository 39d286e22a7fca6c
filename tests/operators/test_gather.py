from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dtypes import INT8
from onnxq.errors import UnsupportedError
from onnxq.operator import Case, DynamicNodePlan, DynamicSite, Precision
from onnxq.operators.gather import Gather
from onnxq.qparams import PerBlock, QParams
from tests.operators import builder
from tests.operators.builder import copied, integers

OP = Gather()


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -1e9, 1e6])
def test_constants_that_stand_for_infinity_stay_float(value: float) -> None:
    mask = np.array([[0, value], [0, 0]], np.float32)
    assert builder.is_float(OP, Case("", (mask, np.array([0, 1])), (0,)))


def test_negative_indices_count_from_the_end() -> None:
    assert copied(OP, integers(3, 1), np.array([-1]))[0].tolist() == [[2]]


@pytest.mark.parametrize("size", [7, 8, 24])
def test_blocks_that_onnx_runtime_has_no_kernel_for_are_refused(size: int) -> None:
    table = ir.Value(name="table_quantized", const_value=ir.tensor(np.zeros((3, 48), np.int8)))
    node = ir.node("Gather", [table, ir.Value(name="i")], name="words")
    scale = np.ones((3, -(-48 // size)), np.float32)
    qparams = QParams(scale, scale.astype(np.int8), INT8, PerBlock(1, size))
    plan = DynamicNodePlan(Precision.WEIGHT_ONLY_GROUPWISE, (qparams,))
    with pytest.raises(UnsupportedError, match="in groups of 16, 32, 64"):
        OP.lower_dynamic(DynamicSite(Tape(), node, node.inputs, plan))
