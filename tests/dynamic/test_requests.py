from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.dynamic.reasons import LacksPrecision, NoDynamicOperator
from onnxq.dynamic.requests import nothing_dynamic, nothing_quantized
from onnxq.errors import NothingQuantizedError, QConfigError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Float, Precision
from onnxq.qconfig import (
    QConfigDynamic,
    QConfigMapping,
    default_qconfig_mapping,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
)
from tests.dynamic_models import SIDE, linear, op_types, planned, quantized
from tests.examples import images, model, network, weights

if TYPE_CHECKING:
    from onnxq.dynamic.spec import DynamicSpec

ENTRY = onnxq_default_dynamic_qconfig
INT4 = QConfigDynamic(NarrowRangeObserver.with_args(dtype="int4", quant_max=7))


def notes(spec: DynamicSpec, dtype: str | None = None, **options: str) -> tuple[str, ...]:
    return planned(linear(), spec, dtype, **options)[1].notes


# --- what is asked for and has no effect


def test_a_node_that_is_named_and_has_no_dynamic_form_is_noted() -> None:
    assert notes({"linear": ENTRY, "add": ENTRY}) == (
        "Add 'add': asked for by the qconfig, but stays in float: "
        "it has no weights that dynamic quantization stores",
    )
    assert notes({"linear": ENTRY, "add": None}) == ()
    assert notes(ENTRY) == ()


def test_an_op_type_that_is_named_and_stays_in_float_is_noted_with_the_reason() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "x"], ["s"], "square"),
            helper.make_node("MatMul", ["s", "w"], ["y"], "linear"),
        ],
        {"w": weights(0, SIDE, SIDE)},
        {"x": [SIDE, SIDE]},
    )
    _, plan = planned(source, {"MatMul"})
    assert plan.notes == (
        "MatMul 'square': asked for by the qconfig, but stays in float: "
        "both of its matrices are computed at run time: it has no weights to store",
    )
    assert planned(source)[1].notes == ()


def test_a_glob_is_noted_where_nothing_that_it_matches_is_quantized() -> None:
    spec = {"lin*": ENTRY, "ad?": ENTRY}
    assert notes(spec) == (
        "nodes 'ad?': asked for by the qconfig, but nothing that it matches is quantized "
        "dynamically",
    )
    assert notes({"*a*": ENTRY}) == ()


def test_what_the_objective_leaves_in_float_needs_no_note() -> None:
    _, plan = planned(linear(rows=1), {"linear": ENTRY}, target="portable")
    assert plan.slower == ("linear",)
    assert plan.notes == (nothing_quantized("portable"),)


def test_a_static_part_is_not_said_to_be_float() -> None:
    mapping = default_qconfig_mapping().set_op_type("Gemm", ENTRY)
    prepared = onnxq.prepare(network(), mapping, "portable")
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, {"x": images(2)}))
    assert nothing_dynamic("portable") in made.notes
    assert nothing_dynamic("portable").startswith("nothing is quantized dynamically: objective")
    assert not any(note.startswith("nothing is quantized:") for note in made.notes)


def test_static_quantization_notes_it_too() -> None:
    mapping = default_qconfig_mapping().set_op_type("Softmax", ENTRY).set_op_type("LSTM", ENTRY)
    prepared = onnxq.prepare(network(), mapping)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, {"x": images(2)}))
    assert [note for note in made.notes if "asked for" in note] == [
        "Softmax 'softmax': asked for by the qconfig, but stays in float: "
        "it has no weights that dynamic quantization stores"
    ]
    assert "the qconfig names op types that are not in the model: 'LSTM'" in made.notes


# --- weights of operators without a dynamic form


def fused(*more: onnx.NodeProto) -> onnx.ModelProto:
    """An operator that ONNX Runtime's own optimizer writes, and onnxq has no dynamic form of."""
    matmul = helper.make_node("FusedMatMul", ["x", "w"], ["a"], "fused", domain="com.microsoft")
    graph = helper.make_graph(
        [matmul, *more],
        "fused",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 5, SIDE])],
        [helper.make_tensor_value_info("y" if more else "a", onnx.TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in {"w": weights(0, SIDE, SIDE), "v": weights(2, SIDE, SIDE)}.items()
        ],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


WHY = NoDynamicOperator(
    "com.microsoft.FusedMatMul",
    "w",
    "quantize the model before such nodes are fused from MatMul or Gemm",
)


def test_a_fused_operator_is_listed_with_the_reason() -> None:
    source = fused(helper.make_node("MatMul", ["a", "v"], ["y"], "linear"))
    _, plan = planned(source, objective="size")
    assert plan.decisions["fused"] == Float(WHY)
    assert list(plan.quantized) == ["linear"]
    assert "FusedMatMul" in op_types(quantized(source))
    asked = {"fused": ENTRY, "linear": ENTRY}
    assert planned(source, asked)[1].notes == (
        f"FusedMatMul 'fused': asked for by the qconfig, but stays in float: {WHY}",
    )


def test_a_model_of_nothing_else_is_refused_with_the_reason() -> None:
    message = r"FusedMatMul 'fused': its constant 'w' stays in float"
    with pytest.raises(NothingQuantizedError, match=message):
        quantized(fused())


# --- a block size


def test_a_block_size_is_never_ignored() -> None:
    entry = QConfigDynamic(ENTRY.weight, block_size=16)
    _, plan = planned(linear(), entry, target="portable")
    assert plan.quantized["linear"].how.words.endswith("in groups of 16, computed in float32")
    recurrent = model(
        [
            helper.make_node("MatMul", ["x", "v"], ["p"], "linear"),
            helper.make_node("GRU", ["p", "w", "r"], ["y"], "gru", hidden_size=SIDE),
        ],
        {
            "v": weights(0, SIDE, SIDE),
            "w": weights(1, 1, 3 * SIDE, SIDE),
            "r": weights(2, 1, 3 * SIDE, SIDE),
        },
        {"x": [3, 2, SIDE]},
    )
    _, plan = planned(recurrent, entry)
    assert plan.decisions["gru"] == Float(
        LacksPrecision(
            "GRU",
            "weight_only_groupwise",
            "",
            "'dynamic_int8', 'weight_only', 'weight_only_float16'",
        )
    )
    with pytest.raises(QConfigError, match="precision 'weight_only_groupwise' and float16 weights"):
        planned(linear(), QConfigDynamic(float16_dynamic_qconfig.weight, block_size=16))


# --- a dtype beside a qconfig


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        (ENTRY, "the entry of every node has int8"),
        (INT4, "the entry of every node has int4"),
        (QConfigMapping(ENTRY), "the entry of every node has int8"),
        ({"MatMul": ENTRY}, "the entry of op type 'MatMul' has int8"),
        ({"lin*": ENTRY, "add": None}, r"the entry of node 'lin\*' has int8"),
    ],
)
def test_a_dtype_that_an_entry_would_overrule_is_refused(spec: DynamicSpec, where: str) -> None:
    with pytest.raises(QConfigError, match=f"dtype float16 is asked for, and {where} weights"):
        onnxq.quantize_dynamic(linear(), spec, "float16")


def test_a_dtype_that_says_the_same_passes() -> None:
    for spec in (float16_dynamic_qconfig, {"MatMul": float16_dynamic_qconfig}, {"MatMul"}, None):
        _, plan = planned(linear(), spec, "float16")
        assert plan.quantized["linear"].precision is Precision.WEIGHT_ONLY_FLOAT16
        assert plan.notes == ()
    assert notes(ENTRY, "qint8") == ()
    with pytest.raises(QConfigError, match=r"dtype int8 is asked for.*float16 weights"):
        quantized(linear(), float16_dynamic_qconfig, "qint8")


def test_exceptions_to_a_dtype_are_noted() -> None:
    mapping = QConfigMapping(float16_dynamic_qconfig, {"Gemm": None}, {"linear": ENTRY})
    assert notes(mapping, "float16") == (
        "dtype float16 is for what the qconfig does not name; it names node 'linear' (int8)",
    )
    assert notes(mapping) == ()
