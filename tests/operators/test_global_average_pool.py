from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.checking.cross_check import cross_check
from onnxq.dtypes import UINT8
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, NodePlan
from onnxq.operators.global_average_pool import GlobalAveragePool
from onnxq.ort import runtime
from onnxq.qparams import per_tensor
from tests.examples import as_ir, model
from tests.operators.builder import copied, integers, u8

OP = GlobalAveragePool()


def test_spatial_axes_stay_with_size_one() -> None:
    (y,) = copied(OP, u8([[[7, 9, 11]]]))
    assert y.tolist() == [[[9]]]


def test_scales_that_onnx_runtime_refuses_when_it_runs_are_a_misfit() -> None:
    below, beyond = (
        NodePlan((per_tensor(step, 0, UINT8),), (per_tensor(1.0, 0, UINT8),))
        for step in (255.9, 256.0)
    )
    assert OP.misfit(Call(OP.op_type, (), below)) == ""
    assert "steps of 256" in OP.misfit(Call(OP.op_type, (), beyond))
    OP.kernel(Call(OP.op_type, [integers(1, 1, 1)], below))
    with pytest.raises(UnsupportedError, match="less than 256"):
        OP.kernel(Call(OP.op_type, [integers(1, 1, 1)], beyond))


def test_a_mean_that_was_0_in_all_samples_stays_float() -> None:
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        onnx.helper.make_node("Relu", ["c"], ["r"], "relu"),
        onnx.helper.make_node("GlobalAveragePool", ["r"], ["y"], "mean"),
        onnx.helper.make_node("Conv", ["y", "w"], ["z"], "conv2"),
    ]
    w = np.full((1, 1, 1, 1), -1e4, np.float32)
    source = as_ir(model(nodes, {"w": w}, {"x": ["N", 1, 2, 2]}, {"c": 1, "z": 1}))
    x = {"x": np.random.default_rng(0).uniform(0.5, 1, (4, 1, 2, 2)).astype(np.float32)}
    for form in ("qdq", "qoperator"):
        int8 = onnxq.quantize(source, [x], format=form)
        assert "GlobalAveragePool" in {node.op_type for node in runtime.optimized_graph(int8).graph}
        cross_check(int8, [x]).check()
