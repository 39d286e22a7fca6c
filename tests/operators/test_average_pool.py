from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.checking.cross_check import cross_check
from onnxq.dtypes import UINT8
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, Case, Float, NodePlan
from onnxq.operators.average_pool import AveragePool
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping, onnxq_default_qconfig
from onnxq.qparams import per_tensor
from tests.examples import as_ir, model
from tests.operators import builder
from tests.operators.builder import copied, integers

OP = AveragePool()


def test_dilations_stay_float() -> None:
    x = np.zeros((1, 1, 9), np.float32)
    case = Case("", (x,), attributes={"kernel_shape": [3], "dilations": [2]})
    assert isinstance(builder.rule(OP, case), Float)


def test_what_the_integer_kernel_counts_differently_stays_float() -> None:
    x = np.zeros((1, 1, 6), np.float32)
    attributes: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}
    assert not isinstance(builder.rule(OP, Case("", (x,), attributes=attributes)), Float)
    rule = builder.rule(OP, Case("", (x,), attributes={**attributes, "count_include_pad": 1}))
    assert isinstance(rule, Float)
    assert "ceil_mode" in rule.reason.words


def test_padding_counts_only_when_asked() -> None:
    x = np.full((1, 1, 2), 107, np.uint8)
    (without,) = copied(OP, x, kernel_shape=[2], pads=[1, 0])
    (counted,) = copied(OP, x, kernel_shape=[2], pads=[1, 0], count_include_pad=1)
    assert without.tolist() == [[[107, 107]]]
    assert counted.tolist() == [[[57, 107]]]


def test_one_window_over_all_is_rounded_as_a_global_mean_is() -> None:
    scale = per_tensor(0.020775916054844856, 129, UINT8)
    plan = NodePlan((scale,), (scale,))
    (y,) = OP.kernel(
        Call(
            OP.op_type, [np.array([[[130, 69]]], np.uint8)], plan, attributes={"kernel_shape": [2]}
        )
    )
    assert y.tolist() == [[[99]]]  # ONNX Runtime's; adding the zero point first gives 100


def test_scales_that_the_kernel_for_one_window_over_all_refuses_are_a_misfit() -> None:
    plan = NodePlan((per_tensor(256.0, 0, UINT8),), (per_tensor(1.0, 0, UINT8),))
    assert "steps of 256" in OP.misfit(Call(OP.op_type, (), plan))
    with pytest.raises(UnsupportedError, match="less than 256"):
        OP.kernel(Call(OP.op_type, [integers(1, 1, 1)], plan, attributes={"kernel_shape": [1]}))


def test_a_mean_that_was_0_in_all_samples_stays_float() -> None:
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        onnx.helper.make_node("Relu", ["c"], ["r"], "relu"),
        onnx.helper.make_node("AveragePool", ["r"], ["y"], "mean", kernel_shape=[2, 2]),
        onnx.helper.make_node("Conv", ["y", "w"], ["z"], "conv2"),
    ]
    w = np.full((1, 1, 1, 1), -1e4, np.float32)
    source = as_ir(model(nodes, {"w": w}, {"x": ["N", 1, 2, 2]}, {"c": 1, "z": 1}))
    x = {"x": np.random.default_rng(0).uniform(0.5, 1, (4, 1, 2, 2)).astype(np.float32)}
    default = onnxq_default_qconfig
    every = QConfigMapping(default).set_op_type("AveragePool", default)
    for form in ("qdq", "qoperator"):
        int8 = onnxq.quantize(source, [x], qconfig=every, format=form)
        assert "AveragePool" in {node.op_type for node in runtime.optimized_graph(int8).graph}
        cross_check(int8, [x]).check()
