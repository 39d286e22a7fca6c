from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import helper

from onnxq.errors import QConfigError
from onnxq.observers import MinMaxObserver, ObserverSpec
from onnxq.operator import Float, Precision
from onnxq.operator.reasons import TensorLeftByRequest
from onnxq.qconfig import QConfigMapping, onnxq_default_qconfig
from onnxq.qparams import PerTensor
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from tests.examples import images, model, weights

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared

MINE = MinMaxObserver.with_args()
OTHER = MinMaxObserver.with_args(dtype="int8")


def network() -> onnx.ModelProto:
    """x -> Conv -> Relu -> MaxPool -> Conv -> RandomUniformLike -> y."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["m"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["m", "w2"], ["d"], "last"),
        helper.make_node("RandomUniformLike", ["d"], ["y"], "random"),
    ]
    constants = {"w": weights(1, 4, 3, 1, 1), "b": weights(2, 4), "w2": weights(3, 4, 4, 1, 1)}
    return model(nodes, constants, {"x": ["N", 3, 8, 8]})


def prepared(tensors: dict[str, ObserverSpec | None]) -> Prepared:
    return prepare(network(), QConfigMapping(onnxq_default_qconfig, tensors=tensors))


@pytest.mark.parametrize("name", ["w", "b", "c", "x"])
def test_null_leaves_the_node_of_the_tensor_in_float(name: str) -> None:
    decision = prepared({name: None}).decisions["conv"]
    assert decision == Float(TensorLeftByRequest(name))


def test_an_observer_named_for_a_weight_observes_it() -> None:
    spec = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric")
    made = prepared({"w": spec})
    planned = plan(made, calibrate(made, [{"x": images(1)}]))
    assert planned.weights["conv"].qparams.granularity == PerTensor()
    assert planned.weights["last"].qparams.granularity != PerTensor()
    assert made.notes == ()


def test_an_observer_for_a_tensor_inside_a_fused_node_is_refused() -> None:
    with pytest.raises(QConfigError, match=r"tensor 'c' is not written.*'conv'.*Name 'r' instead"):
        prepared({"c": MINE})


def test_a_glob_may_match_a_tensor_inside_a_fused_node() -> None:
    assert prepared({"[cr]": MINE}).observed["r"] == MINE


def test_an_observer_for_a_bias_is_refused() -> None:
    with pytest.raises(QConfigError, match=r"tensor 'b' is the bias of 'conv'"):
        prepared({"b": MINE})


def test_two_observers_for_tensors_with_one_scale_are_refused() -> None:
    with pytest.raises(QConfigError, match=r"tensors 'r' .* and 'm' .* one scale and zero point"):
        prepared({"r": MINE, "m": OTHER})
    assert prepared({"r": MINE, "m": MINE}).observed["r"] == MINE


def test_an_exact_name_counts_more_than_a_glob() -> None:
    made = prepared({"m": OTHER, "r*": MINE, "x": MINE})
    assert (made.observed["x"], made.observed["r"]) == (MINE, OTHER)


def test_an_observer_for_a_float_tensor_is_noted() -> None:
    (note,) = prepared({"y": MINE}).notes
    assert note.startswith("tensor 'y' stays in float")


def test_a_named_observer_replaces_the_range_that_an_operator_guarantees() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Sigmoid", ["c"], ["s"], "sigmoid"),
        helper.make_node("Conv", ["s", "w2"], ["y"], "last"),
    ]
    constants = {"w": weights(1, 4, 3, 1, 1), "w2": weights(3, 4, 4, 1, 1)}
    source = model(nodes, constants, {"x": ["N", 3, 8, 8]})
    asked = QConfigMapping(
        onnxq_default_qconfig, op_types={"Sigmoid": onnxq_default_qconfig}, tensors={"s": MINE}
    )
    assert prepare(source, asked).observed["s"] == MINE
    assert "s" not in prepare(source, asked.set_tensor("s", None)).observed


@pytest.mark.parametrize(
    "mapping",
    [
        QConfigMapping(onnxq_default_qconfig).set_op_type(
            "RandomUniformLike", onnxq_default_qconfig
        ),
        QConfigMapping(None).set_node("random", onnxq_default_qconfig),
    ],
    ids=["op type", "node"],
)
def test_a_named_node_that_stays_in_float_is_noted_with_the_reason(mapping: QConfigMapping) -> None:
    assert prepare(network(), mapping).notes == (
        "RandomUniformLike 'random': asked for by the qconfig, but stays in float: "
        "onnxq has no integer form of RandomUniformLike: integers would take 2 conversions",
    )


@pytest.mark.parametrize(
    "mapping",
    [
        QConfigMapping(onnxq_default_qconfig).set_op_type("RandomUniformLike", None),
        QConfigMapping(onnxq_default_qconfig).set_node("ra*", onnxq_default_qconfig),
        QConfigMapping(onnxq_default_qconfig),
    ],
    ids=["float as asked", "glob", "not named"],
)
def test_a_node_that_nobody_named_needs_no_note(mapping: QConfigMapping) -> None:
    assert prepare(network(), mapping).notes == ()


def test_a_float_result_that_a_node_cannot_have_is_noted_with_the_reason() -> None:
    entry = replace(onnxq_default_qconfig, precision=Precision.INT8_FLOAT_OUTPUT)
    notes = prepare(network(), QConfigMapping(onnxq_default_qconfig, nodes={"conv": entry})).notes
    assert any("Conv 'conv'" in n and "only with integers out" in n for n in notes), notes


def test_a_node_that_is_named_float_needs_no_note() -> None:
    entry = replace(onnxq_default_qconfig, precision=Precision.FLOAT)
    notes = prepare(network(), QConfigMapping(onnxq_default_qconfig, nodes={"conv": entry})).notes
    assert not any("stays in float" in n for n in notes), notes
