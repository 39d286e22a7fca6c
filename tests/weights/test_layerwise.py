"""Layer by layer: subgraphs compute what the model computes, whatever runs in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.samples import open_samples
from onnxq.weights import subgraphs
from onnxq.weights.layers import layers_of
from onnxq.weights.layerwise import LayerProposal, layerwise
from onnxq.weights.subgraphs import SpilledArrays
from tests.examples import ALL_INTEGERS, images, model, network, weights

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Singles
    from onnxq.samples.inputs import Batch
    from onnxq.weights.layers import Layer


def attention() -> onnx.ModelProto:
    """Three MatMuls of one tensor, then their biases, then a MatMul of two activations."""
    node = helper.make_node
    nodes = [
        *(node("MatMul", ["x", f"w{i}"], [f"p{i}"], f"matmul{i}") for i in "qkv"),
        *(node("Add", [f"p{i}", f"b{i}"], [f"a{i}"], f"sum{i}") for i in "qkv"),
        node("Transpose", ["ak"], ["t"], "turned", perm=[0, 2, 1]),
        node("MatMul", ["aq", "t"], ["s"], "scores"),
        node("Softmax", ["s"], ["m"], "softmax"),
        node("MatMul", ["m", "av"], ["c"], "context"),
        node("MatMul", ["c", "wo"], ["o"], "out"),
        node("Add", ["o", "x"], ["y"], "residual"),
    ]
    constants = {f"w{i}": weights(seed, 8, 8) for seed, i in enumerate("qkvo")}
    constants |= {f"b{i}": weights(seed + 9, 8) for seed, i in enumerate("qkv")}
    return model(nodes, constants, {"x": ["N", 5, 8]})


def branching() -> onnx.ModelProto:
    """A convolution, and an If whose branches read its result."""
    node = helper.make_node
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["c"], [f"{name}_y"], f"{name}_node")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", 1, None)],
        )
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv"),
        node("ReduceMax", ["x"], ["top"], "top", keepdims=0),
        node("Greater", ["top", "two"], ["large"], "large"),
        node("If", ["large"], ["i"], "if", **branches),
        node("Conv", ["i", "v"], ["y"], "last"),
    ]
    constants = {
        "w": weights(0, 4, 3, 3, 3),
        "v": weights(1, 2, 4, 1, 1),
        "two": np.array(2.9, np.float32),
    }
    return model(nodes, constants, {"x": ["N", 3, 8, 8]})


class Watching:
    """Looks at layers and proposes nothing.

    Args:
        seen: name of a layer -> what it was shown.
        layer: that it looks at.
    """

    def __init__(self, seen: dict[str, list[tuple[Singles, Singles]]], layer: Layer) -> None:
        self.seen = seen.setdefault(layer.name, [])

    def observe(self, x: Singles, y: Singles, _index: int) -> None:
        self.seen.append((x, y))

    def proposal(self) -> LayerProposal:
        return LayerProposal(None, why="only looking")


TOKENS = {"x": np.random.default_rng(3).normal(size=(16, 5, 8)).astype(np.float32)}


@pytest.mark.parametrize(
    ("source", "samples"),
    [(network(), {"x": images(16)}), (attention(), TOKENS), (branching(), {"x": images(16)})],
    ids=["network", "attention", "branching"],
)
def test_layers_see_what_the_whole_quantized_model_gives_them(
    source: onnx.ModelProto, samples: dict[str, Singles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subgraphs, "MOST_IN_MEMORY", 4096)  # the rest goes through files
    prepared = onnxq.prepare(source, ALL_INTEGERS)
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    seen: dict[str, list[tuple[Singles, Singles]]] = {}
    opened = open_samples(onnxq.Samples(samples, 2), prepared.inputs)
    made = layerwise(prepared, plan, opened, "watching", lambda layer, _: Watching(seen, layer))
    (whole,) = (o for o in made.outcomes if not o.place)
    assert whole.kept
    assert whole.before_db == pytest.approx(whole.after_db, abs=1e-9)  # the same outputs
    assert len(seen) == len(made.outcomes) - 1
    results = layers_of(prepared.model, plan)
    exposed = expose(prepared.model, [results[name].y for name in seen])
    with runtime.open_session(exposed.model, threads=1) as session:
        for batch in range(8):
            feeds = {"x": samples["x"][2 * batch : 2 * batch + 2]}
            wanted = dict(zip(session.outputs, session.run(feeds), strict=True))
            for name, pairs in seen.items():
                y = wanted[results[name].y].astype(np.float64)
                np.testing.assert_allclose(pairs[batch][1].astype(np.float64), y, atol=1e-5)


def test_no_more_layers_are_run_than_are_looked_at() -> None:
    prepared = onnxq.prepare(network(), ALL_INTEGERS)
    samples = {"x": images(16)}
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    seen: dict[str, list[tuple[Singles, Singles]]] = {}
    opened = open_samples(onnxq.Samples(samples, 2), prepared.inputs)

    def begin(layer: Layer, _: int) -> Watching:
        return Watching(seen, layer)

    made = layerwise(prepared, plan, opened, "watching", begin, most_layers=1)
    every = list(layers_of(prepared.model, plan))
    assert len(every) > 1
    assert list(seen) == every[:1]
    behind = [o for o in made.outcomes if o.place in every[1:]]
    assert [o.place for o in behind] == every[1:]
    assert {o.why for o in behind} == {
        "it stands behind the first 1 layers: `--improve round` looks at all"
    }


def test_samples_that_judge_alone_are_shown_to_no_layer() -> None:
    prepared = onnxq.prepare(network(), ALL_INTEGERS)
    samples = {"x": images(16)}
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    opened = open_samples(onnxq.Samples(samples, 2), prepared.inputs)
    seen: dict[str, list[tuple[Singles, Singles]]] = {}

    def begin(layer: Layer, _: int) -> Watching:
        return Watching(seen, layer)

    alone = layerwise(prepared, plan, opened, "watching", begin)
    counts = {name: len(pairs) for name, pairs in seen.items()}
    seen.clear()
    judges: list[Batch] = [{"x": images(16)[:2] * np.float32(3)}]
    more = layerwise(prepared, plan, opened, "watching", begin, judges)
    assert {name: len(pairs) for name, pairs in seen.items()} == counts
    assert more.outcomes[-1].before_db != alone.outcomes[-1].before_db


def test_arrays_come_back_from_memory_and_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraphs, "MOST_IN_MEMORY", 100)
    between = SpilledArrays()
    arrays = [np.full((3, 4), i, np.float32) for i in range(5)]
    for array in arrays:
        between.add("t", array)
        between.add("integers", array.astype(np.uint8)[:0])
    for i, array in enumerate(arrays):
        assert np.array_equal(between.get("t", i), array)
        assert between.get("integers", i).shape == (0, 4)
    between.drop("t")
    assert "t" not in between
    with between:
        assert "integers" in between
