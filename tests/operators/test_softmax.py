from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.dtypes import UINT8
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, Case, Float, NodePlan
from onnxq.operators.softmax import Softmax
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import copied, integers

OP = Softmax()


def test_a_single_element_stays_float() -> None:
    rule = builder.rule(OP, Case("", (np.zeros((3, 1), np.float32),)))
    assert isinstance(rule, Float)
    assert "single element" in rule.reason.words


def test_axis_of_unknown_size_stays_float() -> None:
    node = builder.node_of(OP, Case("", (np.zeros((3, 9), np.float32),)))
    assert node.inputs[0] is not None
    for shape in (ir.Shape([3, "n"]), None):
        node.inputs[0].shape = shape
        rule = OP.rule(node)
        assert isinstance(rule, Float)
        assert "not known" in rule.reason.words


def test_its_range_gives_eight_bits_the_scale_one_over_256() -> None:
    rule = builder.rule_of(OP, Case("", (np.zeros((3, 9), np.float32),)))
    assert rule.output_range is not None
    assert np.float32((rule.output_range[1] - rule.output_range[0]) / 255) == 2**-8


def test_scales_that_overflow_in_onnx_runtime_are_refused() -> None:
    p, q = per_tensor(0.1, 0, UINT8), per_tensor(0.003, 0, UINT8)
    with pytest.raises(UnsupportedError, match="overflows"):
        OP.kernel(Call(OP.op_type, [integers(1, 2)], NodePlan((p,), (q,))))


def test_empty_batch_stays_empty() -> None:
    assert copied(OP, integers(0, 30))[0].shape == (0, 30)
