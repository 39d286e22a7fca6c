"""Stages: every node stands in one, and products wait for their inputs alone."""

from __future__ import annotations

import numpy as np
from onnx import helper

from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.graph.walk import node_name
from onnxq.qparams.group_spec import BlockSpec
from onnxq.weights.plan_weights import WeightRequest, plan_weights
from onnxq.weights.stages import Group, Inputs, last_reads, stages_of
from scripts._decoder import Sizes, decoder
from tests.examples import model, weights


def test_products_of_one_tensor_are_a_group_and_each_node_runs_once() -> None:
    source = canonicalize(decoder(Sizes())).model
    stages = stages_of(source, plan_weights(source, WeightRequest()))
    groups = [stage.group.nodes for stage in stages if stage.group]
    assert groups[:4] == [
        ("MatMul_pq0", "MatMul_pk0", "MatMul_pv0"),
        ("MatMul_o0",),
        ("MatMul_g0", "MatMul_u0"),
        ("MatMul_d0",),
    ]
    run = [name for stage in stages if stage.segment for name in stage.segment.nodes]
    assert run == [node_name(node) for node in source.graph]


def test_tensors_are_kept_until_the_last_stage_that_reads_them() -> None:
    source = canonicalize(decoder(Sizes(depth=1))).model
    stages = stages_of(source, plan_weights(source, WeightRequest()))
    last = last_reads(stages)
    assert last["x0"] == 1  # seen behind stage 0, run in stage 1
    assert last["h0"] == 2  # added behind the attention
    assert last["tokens"] == 0


def test_a_matrix_on_the_left_multiplies_columns() -> None:
    node = helper.make_node
    source = model(
        [node("MatMul", ["w", "x"], ["a"], "left"), node("MatMul", ["x", "v"], ["b"], "right")],
        {"w": weights(0, 6, 32), "v": weights(1, 16, 4)},
        {"x": [32, 16]},
        {"a": 1, "b": 1},
    )
    made = canonicalize(load(source)).model
    stages = stages_of(made, plan_weights(made, WeightRequest(BlockSpec(block=16))))
    assert [stage.group for stage in stages[:2]] == [
        Group(Inputs("x", turned=True), ("left",)),
        Group(Inputs("x", turned=False), ("right",)),
    ]
    x = np.arange(12).reshape(3, 4)
    assert np.array_equal(Inputs("x", turned=True).rows(x), x.T.astype(np.float32))
