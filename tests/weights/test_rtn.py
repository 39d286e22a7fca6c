"""Round to nearest in groups."""

from __future__ import annotations

import numpy as np

from onnxq.qparams.group_ranges import search_ranges
from onnxq.qparams.group_spec import GroupSpec
from onnxq.weights.solve import Nearest
from tests.weights.block_models import weight


def test_integers_are_nearest_in_the_range_of_least_squares() -> None:
    w, spec = weight(8, 64), GroupSpec(4, 32)
    scale, point = search_ranges(w, spec)
    made = Nearest()(w, spec)
    inside = (made.integers > 0) & (made.integers < spec.most)
    steps = np.repeat(scale, 32, axis=1)
    centred = made.integers.astype(np.float32) - np.repeat(point, 32, axis=1)
    # half an LSB, and what float32 leaves of it
    assert (np.abs(centred * steps - w)[inside] <= 0.5001 * steps[inside]).all()


def test_power_is_what_the_rows_are_raised_by() -> None:
    w, spec = weight(4, 64), GroupSpec(2, 32)
    power = np.linspace(0.1, 1, 64, dtype=np.float32)
    made = Nearest(power)(w, spec).dequantized
    # float32 scales: a sum of 64 terms within 1e-5
    np.testing.assert_allclose((power * w * made).sum(1), (power * w * w).sum(1), rtol=1e-5)
