from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.operator import Precision
from onnxq.qconfig import Choice, QConfigMapping, default_qconfig_mapping
from onnxq.static.prepare import prepare
from tests.examples import model, network, weights
from tests.small_networks import WIDTH, embedded, encoder_block, perceptron, repeated

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared

INTEGER, RESULT, FLOAT = Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.FLOAT


def forms(prepared: Prepared) -> dict[str, Precision]:
    return {name: chosen.precision for name, chosen in prepared.precisions.items()}


def named(pattern: str) -> QConfigMapping:
    return default_qconfig_mapping().with_overrides([pattern])


def test_weight_matmuls_of_a_transformer_have_float_results_and_the_rest_is_float() -> None:
    found = forms(prepare(encoder_block()))
    matmuls = {name for name in found if name.startswith("weight")}
    assert {found[name] for name in matmuls} == {RESULT}
    assert {found[name] for name in ("scores", "mixed", "sum1", "sum2", "gelu", "norm1")} == {FLOAT}


def test_a_matmul_that_a_matmul_reads_keeps_integers() -> None:
    assert forms(prepare(perceptron())) == {
        "first": INTEGER,
        "relu": INTEGER,
        "second": INTEGER,
        "relu2": INTEGER,
        "third": RESULT,
    }


def test_what_moves_integers_to_a_matmul_stays_on_integers() -> None:
    found = forms(prepare(encoder_block()))
    assert found["together"] is INTEGER  # between the float attention and its output MatMul
    assert found["heads"] is FLOAT  # between a float result and a float MatMul


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrence_is_dynamic_and_its_table_is_stored(kind: str) -> None:
    found = forms(prepare(embedded(kind)))
    assert found == {"table": Precision.DYNAMIC_INT8, "layer": Precision.DYNAMIC_INT8}


def test_what_a_loop_repeats_is_dynamic() -> None:
    found = forms(prepare(repeated()))
    assert found["inside"] is Precision.DYNAMIC_INT8


@pytest.mark.parametrize("target", ["portable", "x86-vnni"])
def test_every_choice_has_a_reason_with_a_figure(target: str) -> None:
    for made in (encoder_block(), perceptron(), embedded("LSTM"), network()):
        reasons = [
            chosen.reason.words for chosen in prepare(made, None, target).precisions.values()
        ]
        assert [r for r in reasons if not re.search(r"(?<![a-z-])\d", r)] == []


@pytest.mark.parametrize(
    ("setting", "node", "form"),
    [
        ("node:scores=default", "scores", RESULT),
        ("node:scores=int8", "scores", INTEGER),
        ("op:MatMul=float", "weight_up", FLOAT),
        ("node:weight_up=int8", "weight_up", INTEGER),
        ("node:weight_up=dynamic_int8", "weight_up", Precision.DYNAMIC_INT8),
        ("op:Add=default", "sum1", INTEGER),
    ],
)
def test_what_the_user_names_is_never_chosen_otherwise(
    setting: str, node: str, form: Precision
) -> None:
    assert forms(prepare(encoder_block(), named(setting)))[node] is form


def test_a_convolutional_network_is_as_with_all_integers() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "v"], ["c"], "conv2"),
        helper.make_node("Add", ["b", "c"], ["d"], "sum"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "pool"),
        helper.make_node("Flatten", ["e"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "m"], ["y"], "head"),
    ]
    constants = {
        "w": weights(1, 4, 3, 1, 1),
        "v": weights(2, 4, 4, 1, 1),
        "m": weights(3, 4, 10),
    }
    made = model(nodes, constants, {"x": ["N", 3, 8, 8]})
    best, every = prepare(made), prepare(made, named("op:Softmax=float"))
    assert best.decisions == every.decisions
    assert Counter(forms(best).values()) == {INTEGER: 6, RESULT: 1}


def test_all_integers_choose_nothing() -> None:
    mapping = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    prepared = prepare(encoder_block(), mapping)
    assert prepared.chosen.mapping == mapping
    assert not prepared.chosen.reasons
    assert forms(prepared)["sum1"] is INTEGER


def test_a_float_stream_that_convolutions_begin_stays_float() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "stem"),
        helper.make_node("Reshape", ["a", "shape"], ["t"], "tokens"),
        helper.make_node("Add", ["t", "places"], ["s"], "placed"),
        helper.make_node("MatMul", ["s", "m"], ["p"], "matmul"),
        helper.make_node("Add", ["s", "p"], ["r"], "residual"),
        helper.make_node("RandomUniformLike", ["r"], ["y"], "float"),
    ]
    constants = {
        "w": weights(1, WIDTH, 3, 1, 1),
        "shape": np.array([-1, WIDTH]),
        "places": weights(2, 1, WIDTH),
        "m": weights(3, WIDTH, WIDTH),
    }
    made: onnx.ModelProto = model(nodes, constants, {"x": [1, 3, 4, 4]})
    found = forms(prepare(made))
    assert found["stem"] is INTEGER
    assert found["residual"] is FLOAT
    assert found["matmul"] is RESULT


@pytest.mark.parametrize(
    ("op_type", "terms", "form"),
    [("Mish", 8, INTEGER), ("Mish", 2048, RESULT), ("Gelu", 8, RESULT), ("Softplus", 64, INTEGER)],
)
def test_a_function_that_saves_more_than_its_matmul_does_is_on_integers(
    op_type: str, terms: int, form: Precision
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node(op_type, ["a"], ["f"], "function"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "last"),
    ]
    constants = {"w": weights(1, terms, 16), "v": weights(2, 16, 4)}
    found = forms(prepare(model(nodes, constants, {"x": ["N", terms]}, opset=20)))
    assert found["first"] is form
    assert found["function"] is (INTEGER if form is INTEGER else FLOAT)
