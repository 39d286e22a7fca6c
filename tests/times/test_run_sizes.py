from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.operator import Precision
from onnxq.times import costs_of
from onnxq.times.model_times import TimeModel, every_size, known_shapes
from onnxq.tuning.measure_times import times_of
from tests.examples import ALL_INTEGERS, weights
from tests.examples import model as example
from tests.tuning.parts import evaluator_of

X = {"x": np.ones((2, 256), np.float32)}


def behind(op_type: str, domain: str = "") -> onnx.ModelProto:
    """A MatMul behind an operator, from x (N, 256) to y."""
    nodes = [
        helper.make_node(op_type, ["x"], ["a"], "ahead", domain=domain),
        helper.make_node("MatMul", ["a", "w"], ["y"], "matmul"),
    ]
    made = example(nodes, {"w": weights(1, 256, 256)}, {"x": ["N", 256]})
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def test_a_run_tells_sizes_behind_an_operator_that_inference_does_not_know() -> None:
    model = ir.serde.deserialize_model(behind("QuickGelu", "com.microsoft"))
    shapes = known_shapes(model, X)
    assert shapes["a"] == (2, 256)
    assert every_size(model, shapes)["y"] == (2, 256)


def test_inputs_are_enough_where_inference_knows_the_rest() -> None:
    model = ir.serde.deserialize_model(behind("Relu"))
    assert known_shapes(model, X) == {"x": (2, 256)}
    assert every_size(model, {"x": (2, 256)})["y"] == (2, 256)


def test_a_table_of_costs_times_matmuls_behind_such_an_operator() -> None:
    samples = {"x": np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32)}
    evaluator = evaluator_of(behind("QuickGelu", "com.microsoft"), samples)
    table = costs_of("x86-vnni")
    assert table is not None
    found = times_of(evaluator, table)
    model = evaluator.subject.prepared(ALL_INTEGERS).model
    assert TimeModel(found, model).ratio({"matmul": Precision.DYNAMIC_INT8}) != pytest.approx(1.0)
