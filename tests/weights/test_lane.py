"""Lane: what segments make of every batch."""

from __future__ import annotations

import numpy as np
from onnx import helper

from onnxq.weights.activation_cache import KeptArrays
from onnxq.weights.lane import Lane
from tests.examples import as_ir, model, weights


def test_outputs_are_kept_for_every_batch_until_they_are_dropped() -> None:
    part = as_ir(
        model([helper.make_node("Add", ["x", "w"], ["y"])], {"w": weights(0, 3)}, {"x": ["N", 3]})
    )
    feeds = KeptArrays()
    batches = [np.full((size, 3), size, np.float32) for size in (1, 2)]
    for batch in batches:
        feeds.add("x", batch)
    with Lane(feeds, 2) as lane:
        lane.advance(part)
        for index, batch in enumerate(batches):
            assert np.array_equal(lane.get("y", index), batch + weights(0, 3))
        lane.drop("x")  # an input stays
        lane.drop("y")
        assert np.array_equal(lane.get("x", 1), batches[1])
