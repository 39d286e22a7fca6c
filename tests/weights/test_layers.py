"""Layers of a model: its quantized weights as matrix products, and where biases stand."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.graph.walk import node_name
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.weights.layers import layers_of
from tests.examples import ALL_INTEGERS, images, model, network, weights


def test_nodes_with_a_quantized_weight_are_layers_in_the_order_in_which_they_run() -> None:
    prepared = onnxq.prepare(network(), ALL_INTEGERS)
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, {"x": images(4)}))
    found = layers_of(prepared.model, plan)
    assert list(found) == ["conv1", "conv2", "gemm"]
    assert found["conv1"].clamp == (0.0, np.inf)  # its Relu alone reads it
    assert found["conv2"].clamp is None  # a sum does
    assert all(layer.bias_slot is not None for layer in found.values())


def biased(qconfig: QConfigMapping) -> dict[str, tuple[str, str | None]]:
    """Name of a layer -> (its result with the bias, who holds the bias)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m"], "first"),
        helper.make_node("Add", ["m", "b1"], ["s"], "sum"),
        helper.make_node("MatMul", ["s", "w2"], ["y"], "second"),
    ]
    constants = {"w1": weights(1, 12, 8), "b1": weights(3, 8), "w2": weights(2, 8, 5)}
    prepared = onnxq.prepare(model(nodes, constants, {"x": ["N", 12]}), qconfig)
    rows = {"x": np.random.default_rng(0).normal(size=(16, 12)).astype(np.float32)}
    found = layers_of(prepared.model, onnxq.plan(prepared, onnxq.calibrate(prepared, rows)))
    slots = {name: layer.bias_slot for name, layer in found.items()}
    return {n: (found[n].y, node_name(slot.node) if slot else None) for n, slot in slots.items()}


@pytest.mark.parametrize("qconfig", [ALL_INTEGERS, default_qconfig_mapping()])
def test_a_bias_behind_a_matmul_is_its_own_and_without_one_it_has_none(
    qconfig: QConfigMapping,
) -> None:
    assert biased(qconfig) == {"first": ("s", "sum"), "second": ("y", None)}
