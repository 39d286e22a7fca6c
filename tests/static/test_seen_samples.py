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
