from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.operator.reasons import LeftByRequest
from onnxq.static import deciders
from onnxq.static.calibrate import calibrate
from onnxq.static.choosing.proposals import Proposal
from onnxq.static.deciders import DECIDERS, with_measurements
from onnxq.static.prepare import prepare
from onnxq.static.why import chain_of
from tests.examples import model, weights
from tests.small_networks import encoder_block


def test_a_chain_ends_with_what_was_chosen_and_names_listed_deciders() -> None:
    prepared = prepare(encoder_block(), None, "x86-vnni")
    spec = prepared.inputs[0]
    assert spec.shape is not None
    shape = [size if isinstance(size, int) else 2 for size in spec.shape]
    x = np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)
    statistics = calibrate(prepared, [{spec.name: x}])
    decided, _ = with_measurements(prepared, statistics, Objective.SIZE)
    names = {decider.__name__ for decider in DECIDERS}
    lengths = set()
    for node, _ in decided.context.order:
        chain = chain_of(decided, node_name(node))
        assert {said.decider for said in chain} <= names
        if node_name(node) in decided.chosen.chain:
            assert chain[-1].reason == decided.precisions[node_name(node)].reason
        lengths.add(len(chain))
    assert max(lengths) > 1


def test_a_chain_ends_with_what_inserting_quantizers_changed() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("MaxPool", ["c"], ["p"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["p", "w2"], ["y"], "last"),
    ]
    constants = {"w": weights(1, 4, 3, 1, 1), "w2": weights(2, 4, 4, 1, 1)}
    prepared = prepare(model(nodes, constants, {"x": ["N", 3, 8, 8]}))
    assert [said.precision for said in chain_of(prepared, "pool")] == [Precision.INT8]
    left = dict.fromkeys(("conv", "last"), Proposal(None, LeftByRequest()))
    changed = replace(prepared, chosen=prepared.chosen.following("by_stored_bits", left))
    assert [(said.decider, said.precision) for said in chain_of(changed, "pool")] == [
        ("by_conversions", Precision.INT8),
        ("by_conversions", Precision.FLOAT),
    ]


def test_the_table_of_contents_names_every_decider() -> None:
    assert deciders.__doc__ is not None
    for decider in deciders.DECIDERS:
        assert decider.__name__ in deciders.__doc__
