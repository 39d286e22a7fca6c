from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from onnxq.observers import MinMaxObserver
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import ALL_INTEGERS, images, model, weights

if TYPE_CHECKING:
    from onnxq.qconfig import QConfigMapping

TOP = np.array(0.5, np.float32)
CLIPPED = [
    helper.make_node("Conv", ["x", "w"], ["a"], "first"),
    helper.make_node("Conv", ["x", "v"], ["b"], "second"),
    helper.make_node("Concat", ["a", "b"], ["k"], "concat", axis=1),
    helper.make_node("Clip", ["k", "low", "high"], ["t"], "clip"),
    helper.make_node("Conv", ["t", "u"], ["y"], "last"),
]
POOLED = [
    helper.make_node("Conv", ["x", "w"], ["a"], "first"),
    helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Conv", ["p", "w"], ["y"], "last"),
]
BRANCH = [helper.make_node("Conv", ["a", "w"], ["z"], "branch")]
CONSTANTS = {
    "w": 6 * weights(1, 3, 3, 1, 1),
    "v": 6 * weights(2, 3, 3, 1, 1),
    "u": weights(3, 4, 6, 1, 1),
    "joined": weights(4, 1, 3, 8, 8),
    "low": -TOP,
    "high": TOP,
}
SHAPES: dict[str, list[int | str]] = {"x": ["N", 3, 8, 8]}


def network(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    read = {name for node in nodes for name in node.input}
    constants = {name: x for name, x in CONSTANTS.items() if name in read}
    outputs = {name for name in ("y", "z") if any(name in node.output for node in nodes)}
    return model(nodes, constants, SHAPES, dict.fromkeys(sorted(outputs), onnx.TensorProto.FLOAT))


def observed(nodes: list[onnx.NodeProto], qconfig: QConfigMapping = ALL_INTEGERS) -> set[str]:
    return set(prepare(network(nodes), qconfig).observed)


def test_of_a_tensor_that_a_pool_reads_the_maxima_are_observed() -> None:
    assert observed(POOLED) == {"x", "p", "y"}


def test_a_constant_that_is_joined_to_a_tensor_is_no_tensor_that_is_seen() -> None:
    joined = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first"),
        helper.make_node("Concat", ["a", "joined"], ["b"], "concat", axis=1),
        helper.make_node("MaxPool", ["b"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "u"], ["y"], "last"),
    ]
    assert observed(joined) == {"x", "p", "y"}


def test_a_tensor_that_others_read_too_is_observed_itself() -> None:
    assert observed([*POOLED, *BRANCH]) == {"x", "a", "y", "z"}


def test_a_concatenation_ahead_of_a_clip_is_observed_behind_it() -> None:
    assert observed(CLIPPED) == {"x", "t", "y"}


def test_an_observer_that_is_named_for_a_tensor_sees_that_tensor() -> None:
    mine = replace(ALL_INTEGERS, tensors={"a": MinMaxObserver.with_args()})
    assert "a" in observed(POOLED, mine)


def test_integers_end_at_the_bounds_of_a_clip_behind_a_concatenation() -> None:
    prepared = prepare(network(CLIPPED), ALL_INTEGERS)
    made = plan(prepared, calibrate(prepared, {"x": images(16)}))
    for tensor in ("a", "b", "k", "t"):
        qparams = made.tensors[tensor]
        ends = (np.array([0, 255]) - int(qparams.zero_point)) * float(qparams.scale)
        # some integers more, where that puts both bounds on the grid; the sums reach ten times as
        # far
        np.testing.assert_allclose(ends, [-TOP, TOP], rtol=0.05)


def test_a_clip_of_integers_that_end_at_its_bounds_is_not_written() -> None:
    relu = helper.make_node("Relu", ["k"], ["t"], "relu")
    nodes = [relu if node.name == "clip" else node for node in CLIPPED]
    prepared = prepare(network(nodes), ALL_INTEGERS)
    made = rewrite(prepared, plan(prepared, calibrate(prepared, {"x": images(16)})))
    assert not {"Clip", "Relu"} & {node.op_type for node in made.graph}


def test_statistics_that_lack_the_maxima_give_the_range_of_what_was_seen() -> None:
    prepared = prepare(network(POOLED), ALL_INTEGERS)
    more = prepare(network([*POOLED, *BRANCH]), ALL_INTEGERS)
    seen = replace(calibrate(more, {"x": images(16)}), model_hash=prepared.model_hash)
    assert plan(prepared, seen).tensors["a"] == seen.observers["a"].calculate_qparams()
