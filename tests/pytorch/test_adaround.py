"""AdaRound against every rounding that there is, and in the flow."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.errors import QConfigError
from onnxq.improve import find
from onnxq.improve.improvement import registry
from onnxq.pytorch import adaround
from onnxq.pytorch.adaround import learned
from tests.examples import ALL_INTEGERS, images, network

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles

pytestmark = pytest.mark.oracle
FOUR_BITS = ALL_INTEGERS.with_overrides(
    ["global={weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7}}"]
)


def row_errors(stored: Reals, x: Singles, y: Singles) -> Reals:
    """(outputs,): squared error of the products with that weight."""
    left = y - x @ stored.astype(np.float32).swapaxes(1, 2)
    return np.asarray(np.square(left, dtype=np.float64).sum((0, 1)))


def test_learned_rounding_lies_between_the_nearest_and_the_best_of_all() -> None:
    """Eight weights have 256 roundings up or down; six rows are learned at once."""
    rng = np.random.default_rng(0)
    mixed = np.eye(8) + 0.4 * rng.normal(size=(8, 8))
    x = (rng.normal(size=(1, 512, 8)) @ mixed).astype(np.float32)
    weight, scale = rng.normal(size=(1, 6, 8)), np.full((1, 6, 1), 0.5)
    ends = (np.full((1, 6, 1), -7), np.full((1, 6, 1), 7))
    y = (x @ weight.swapaxes(1, 2)).astype(np.float32)
    floor = np.floor(weight / scale)
    codes = learned(weight / scale, scale, ends, (x, y))
    assert set(np.unique(codes - floor)) <= {0, 1}
    every = [floor + np.array(up) for up in itertools.product((0, 1), repeat=8)]
    least = np.min([row_errors(each * scale, x, y) for each in every], axis=0)
    nearest = row_errors(np.rint(weight / scale) * scale, x, y)
    found = row_errors(codes * scale, x, y)
    assert (found >= least * (1 - 1e-5)).all()
    assert (found <= nearest * (1 + 1e-5)).all()
    assert found.sum() - least.sum() < 0.5 * (nearest.sum() - least.sum())


def test_four_bit_weights_gain_at_the_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaround, "ITERATIONS", 200)
    samples = {"x": images(64)}
    made = onnxq.quantize(
        network(),
        onnxq.Samples(samples, batch_size=8),
        qconfig=FOUR_BITS.set_improve(("adaround",)),
    )
    plain = onnxq.quantize(network(), onnxq.Samples(samples, batch_size=8), qconfig=FOUR_BITS)
    assert made.verdict is not None
    assert plain.verdict is not None
    before, after = (v.outputs[0].sqnr_db or 0.0 for v in (plain.verdict, made.verdict))
    assert after > before + 0.5


def test_without_torch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry, "adaround", raising=False)
    monkeypatch.setitem(sys.modules, "onnxq.pytorch.adaround", None)
    with pytest.raises(QConfigError, match=r"needs torch .*onnxq\[torch\]"):
        find("adaround")
