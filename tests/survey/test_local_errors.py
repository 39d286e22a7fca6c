from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.affine import fake_quantize
from onnxq.checking.side_by_side import Sums
from onnxq.survey.local_errors import TensorErrors, errors_of
from tests.survey.pair import BATCH, pair


def test_the_error_of_an_input_is_its_own() -> None:
    sides = pair().sides()
    x = errors_of(sides, [BATCH], {})["x"]
    qparams = sides.tensors[0].qparams
    assert qparams is not None
    values = BATCH["x"].astype(np.float32)
    noise = np.square(values - fake_quantize(values, qparams)).sum()
    wanted = 10 * math.log10(np.square(values).sum() / noise)
    assert x.local_db == pytest.approx(wanted, abs=1e-3)  # sums in float32 here
    assert x.accumulated_db == math.inf


def test_an_own_error_is_the_smaller_one_behind_other_nodes() -> None:
    found = errors_of(pair().sides(), [BATCH], {})
    behind = [one for name, one in found.items() if name not in ("x", "y") and one.local_db]
    assert behind
    for one in behind:
        assert one.local_db is not None
        assert one.local_db > one.whole.compared.sqnr_db - 1.0  # the two may be correlated a little


def test_powers_of_both_errors_add_up() -> None:
    one = TensorErrors()
    x = np.array([3.0, 4.0])
    one.whole.compared.update(x, x + np.array([0.3, 0.4]))

    one.local = Sums()
    one.local.compared.update(x, x + np.array([0.3, 0.0]))
    assert one.accumulated_db == pytest.approx(10 * math.log10(25 / 0.16))


def test_histograms_count_every_float_value() -> None:
    found = errors_of(pair().sides(), [BATCH, BATCH], {})
    histogram = found["x"].histogram
    assert histogram is not None
    assert sum(histogram.counts) == 2 * BATCH["x"].size
    assert histogram.low <= BATCH["x"].min() < BATCH["x"].max() <= histogram.high


def test_what_rounded_inputs_take_to_infinity_is_lost_on_the_way_in() -> None:
    one = TensorErrors()
    x = np.array([3.0, 4.0])
    one.whole.compared.update(x, x + np.array([0.3, 0.4]))
    one.local = Sums()
    one.local.compared.update(np.array([3.0, -math.inf]), x)
    assert (one.local_db, one.accumulated_db) == (None, -math.inf)
