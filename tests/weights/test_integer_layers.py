"""Layers in integers, as the sites of factors see them: rounded as the written model rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.graph.weights import constant_array
from onnxq.operator import Precision
from onnxq.operator.nodes import input_at
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping, onnxq_default_dynamic_qconfig
from onnxq.weights.integer_layers import at_run_time, integer_layers
from tests.examples import ALL_INTEGERS, model, weights

if TYPE_CHECKING:
    from onnxq.static.prepared import Prepared

ROWS = {"x": np.random.default_rng(0).normal(size=(16, 12)).astype(np.float32)}
DYNAMIC = QConfigMapping().set_global(
    replace(onnxq_default_dynamic_qconfig, precision=Precision.DYNAMIC_INT8)
)


def linear_layers(qconfig: QConfigMapping) -> Prepared:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m"], "first"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], "second"),
    ]
    constants = {"w1": weights(1, 12, 8), "w2": weights(2, 8, 5)}
    return onnxq.prepare(model(nodes, constants, {"x": ["N", 12]}), qconfig, "x86-vnni")


@pytest.mark.parametrize("qconfig", [ALL_INTEGERS, DYNAMIC], ids=["static", "dynamic"])
def test_weights_are_rounded_as_the_plan_rounds_them(qconfig: QConfigMapping) -> None:
    prepared = linear_layers(qconfig)
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, ROWS))
    found = integer_layers(prepared)
    assert list(found) == ["first", "second"]
    for name, layer in found.items():
        weight = np.asarray(constant_array(input_at(layer.node, layer.slot)), np.float32)
        stored = plan.dynamic[name].weights[0] if name in plan.dynamic else plan.weights[name]
        assert stored.qparams is not None
        steps = (layer.rounded(weight) / stored.qparams.scale).astype(np.float64)
        assert np.abs(steps - np.rint(steps)).max() < 1e-4
        assert np.abs(layer.rounded(weight) - weight).max() <= 0.51 * stored.qparams.scale.max()


def test_static_layers_have_an_observer_and_others_take_the_range_of_each_run() -> None:
    assert all(p.observer for p in integer_layers(linear_layers(ALL_INTEGERS)).values())
    assert not any(p.observer for p in integer_layers(linear_layers(DYNAMIC)).values())


def test_a_static_layer_with_an_add_behind_has_a_bias_to_correct() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m"], "first"),
        helper.make_node("Add", ["m", "b"], ["a"], "add"),
        helper.make_node("MatMul", ["a", "w2"], ["y"], "second"),
    ]
    constants = {"w1": weights(1, 12, 8), "b": weights(3, 8), "w2": weights(2, 8, 5)}
    proto = model(nodes, constants, {"x": ["N", 12]})

    def with_bias(qconfig: QConfigMapping) -> dict[str, bool]:
        found = integer_layers(onnxq.prepare(proto, qconfig, "x86-vnni"))
        return {name: layer.has_bias for name, layer in found.items()}

    assert with_bias(ALL_INTEGERS) == {"first": True, "second": False}
    assert with_bias(DYNAMIC) == {"first": False, "second": False}


def test_integers_made_at_run_time_are_those_of_onnx_runtime() -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    made = ir.from_proto(model(nodes, {}, {"x": ["N", 12]}))
    with runtime.open_session(made, threads=1) as session:
        (wanted,) = session.run(ROWS)
    assert np.abs(at_run_time(ROWS["x"]) - wanted.astype(np.float32)).max() < 1e-6
