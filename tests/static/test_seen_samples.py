from __future__ import annotations

import numpy as np

from onnxq.static.seen_samples import SeenSamples


def test_shapes_are_those_of_one_sample_and_the_largest_count() -> None:
    long = SeenSamples.of({"x": np.zeros((4, 9), np.float32), "s": np.zeros((), np.float32)}, {"x"})
    wide = SeenSamples.of({"x": np.zeros((2, 7), np.float32), "s": np.zeros((), np.float32)}, {"x"})
    assert long.shapes == {"x": (1, 9), "s": ()}
    assert wide.merged(long).shapes == long.merged(wide).shapes == {"x": (1, 9), "s": ()}


def test_inputs_without_an_axis_of_samples_keep_their_first_size() -> None:
    seen = SeenSamples.of({"x": np.zeros((7, 9), np.float32)}, ())
    assert seen.shapes == {"x": (7, 9)}


def test_shapes_of_other_ranks_merge_to_the_same_in_any_order_and_grouping() -> None:
    a, b, c = (
        SeenSamples.of({"x": np.zeros(shape, np.float32)}, {"x"})
        for shape in ((1, 9), (1, 3, 4), (1, 5))
    )
    wanted = {"x": (1, 3, 4)}
    assert a.merged(b).merged(c).shapes == a.merged(b.merged(c)).shapes == wanted
    assert c.merged(a).merged(b).shapes == b.merged(c).merged(a).shapes == wanted
