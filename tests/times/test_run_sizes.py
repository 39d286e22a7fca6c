from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.operator import Precision
from onnxq.times import costs_of
from onnxq.times.model_times import TimeModel, every_size, known_shapes, sizes_for
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


def test_sizes_behind_such_an_operator_are_known_of_made_up_inputs() -> None:
    model = ir.serde.deserialize_model(behind("QuickGelu", "com.microsoft"))
    assert sizes_for(model, {"x": (2, 256)})["y"] == (2, 256)
    assert sizes_for(model, {"x": (3, 256)})["y"] == (3, 256)


def test_sizes_are_those_of_inference_where_a_model_does_not_run_on_made_up_inputs() -> None:
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["a"], "gelu", domain="com.microsoft"),
        helper.make_node("Reshape", ["a", "a_shape"], ["y"], "reshape"),
    ]
    made = example(nodes, {"a_shape": np.array([7, -1])}, {"x": ["N", 256]})
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = sizes_for(ir.serde.deserialize_model(made), {"x": (3, 256)})
    assert found["x"] == (3, 256)
    assert "y" not in found


def test_weights_behind_such_an_operator_are_quantized_dynamically() -> None:
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["a"], "ahead", domain="com.microsoft"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "matmul"),
    ]
    source = example(nodes, {"w": weights(1, 128, 128)}, {"x": ["N", "L", 128]})
    source.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made = onnxq.quantize_dynamic(
        source, target="portable", shapes={"x": (1, 64, 128)}, check=onnxq.Check.NONE
    )
    assert "MatMulInteger" in [node.op_type for node in made.graph]


def test_a_table_of_costs_times_matmuls_behind_such_an_operator() -> None:
    samples = {"x": np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32)}
    evaluator = evaluator_of(behind("QuickGelu", "com.microsoft"), samples)
    table = costs_of("x86-vnni")
    assert table is not None
    found = times_of(evaluator, table)
    model = evaluator.subject.prepared(ALL_INTEGERS).model
    assert TimeModel(found, model).ratio({"matmul": Precision.DYNAMIC_INT8}) != pytest.approx(1.0)
