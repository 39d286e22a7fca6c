from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.errors import NothingQuantizedError
from onnxq.operator import Float, Precision
from onnxq.qconfig import QConfigDynamic, default_dynamic_qconfig
from onnxq.targets import DynamicSpeedup
from tests.dynamic_models import UNMEASURED, planned, quantized, run, stored
from tests.examples import weights

WORDS, WIDTH = 40, 32
GAIN = DynamicSpeedup("Gemm", "dynamic_int8", 8, WIDTH, WORDS, 1, 0.5)
SLOW = dataclasses.replace(UNMEASURED, name="mine", dynamic_speedups=(GAIN,))


def tied() -> onnx.ModelProto:
    """y = table[i] table^T, one initializer."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "i"], ["a"], "words"),
            helper.make_node("Gemm", ["a", "table"], ["y"], "head", transB=1),
        ],
        "tied",
        [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", WORDS])],
        [onnx.numpy_helper.from_array(weights(1, WORDS, WIDTH), "table")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def test_a_lookup_table_that_a_float_matmul_keeps_stays_float() -> None:
    _, plan = planned(tied(), target=SLOW)
    decision = plan.decisions["words"]
    assert isinstance(decision, Float)
    assert "'table' stays in the file in float for 'head'" in decision.reason.words
    assert set(plan.slower) == {"words", "head"}
    with pytest.warns(UserWarning, match="nothing is quantized"):
        assert "table" in stored(quantized(tied(), target=SLOW))


def test_a_float_lookup_table_and_its_transpose_are_stored_once() -> None:
    source = tied()
    table = weights(1, WORDS, WIDTH)
    source.graph.initializer.append(onnx.numpy_helper.from_array(table.T.copy(), "turned"))
    head = source.graph.node[1]
    head.input[1] = "turned"
    del head.attribute[:]
    _, plan = planned(source, target=SLOW)
    assert not plan.quantized
    with pytest.warns(UserWarning, match="nothing is quantized"):
        made = quantized(source, target=SLOW)
    assert stored(made) == {"table": "FLOAT"}
    ids = np.arange(3)
    expected = table[ids] @ table.T
    np.testing.assert_allclose(run(made, {"i": ids}), expected, rtol=1e-4, atol=1e-5)


def test_integers_that_a_matmul_stores_are_the_lookup_tables_too() -> None:
    _, plan = planned(tied())
    assert list(plan.quantized) == ["words", "head"]


@pytest.mark.parametrize("named", ["size", "form"])
def test_what_is_asked_for_is_quantized(named: str) -> None:
    entry = QConfigDynamic(default_dynamic_qconfig.weight, Precision.WEIGHT_ONLY)
    spec = {"words": entry, "head": None} if named == "form" else None
    objective = "size" if named == "size" else "speed"
    _, plan = planned(tied(), spec, target=SLOW, objective=objective)
    assert "words" in plan.quantized


def picked(table: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> onnx.ModelProto:
    """y = table[i]."""
    shape: list[int | str | None] = ["N", *table.shape[1:]]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"], "rows")],
        "picked",
        [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize(
    ("shape", "words"),
    [((3000,), "its lookup table 'table' has one number per row"), ((8, 31), "takes 992 bytes")],
)
def test_a_lookup_table_is_not_rounded_for_nothing(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(NothingQuantizedError, match=words):
        planned(picked(weights(1, *shape)))


@pytest.mark.parametrize("shape", [(3000,), (8, 31)])
def test_a_small_lookup_table_is_stored_as_integers_where_the_qconfig_says_so(
    shape: tuple[int, ...],
) -> None:
    spec = QConfigDynamic(default_dynamic_qconfig.weight_observer, Precision.WEIGHT_ONLY)
    decision = planned(picked(weights(1, *shape)), {"rows": spec})[1].decisions["rows"]
    assert not isinstance(decision, Float)


def test_a_lookup_table_of_1024_bytes_is_stored_as_integers() -> None:
    assert not isinstance(planned(picked(weights(1, 8, 32)))[1].decisions["rows"], Float)


def computed() -> onnx.ModelProto:
    """y = x cos(rows columns): a table of 64 KB from two rows of 512 bytes."""
    row = np.arange(128, dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["rows", "columns"], ["phase"], "mul"),
            helper.make_node("Cos", ["phase"], ["table"], "cos"),
            helper.make_node("MatMul", ["x", "table"], ["y"], "matmul"),
        ],
        "computed",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [64, 128])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [64, 128])],
        [
            onnx.numpy_helper.from_array(row[:, None], "rows"),
            onnx.numpy_helper.from_array(row[None], "columns"),
        ],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])


def test_objective_size_leaves_a_table_in_float_that_the_file_computes() -> None:
    with pytest.raises(NothingQuantizedError, match="computes its weight 'table' from 1024 bytes"):
        planned(computed(), objective="size")
