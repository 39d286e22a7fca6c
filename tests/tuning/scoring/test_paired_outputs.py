from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.tuning.scoring.paired_outputs import PairedOutputs

X = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)


def test_the_worst_output_and_the_worst_agreement_count() -> None:
    pairs = PairedOutputs()
    pairs.update({"a": X, "b": X}, {"a": X, "b": X[::-1]})
    assert pairs.sqnr_db == {"a": math.inf, "b": pytest.approx(10 * math.log10(2 / 4))}
    assert pairs.worst_db == pytest.approx(-3.01, abs=0.01)
    assert pairs.top1 == 0.0


def test_batches_add_up() -> None:
    pairs = PairedOutputs()
    for y in (X, X[::-1]):
        pairs.update({"a": X}, {"a": y})
    assert pairs.top1 == 0.5


def test_integers_agree_where_they_are_equal() -> None:
    pairs = PairedOutputs()
    pairs.update({"ids": np.arange(4)}, {"ids": np.array([0, 1, 2, 0])})
    assert pairs.top1 == 0.75
    assert pairs.sqnr_db == {}
    with pytest.raises(CalibrationError, match=r"gives no floats.*top1"):
        _ = pairs.worst_db


def test_an_output_that_changes_its_shape_is_the_worst() -> None:
    pairs = PairedOutputs()
    pairs.update({"a": X, "b": X}, {"a": X, "b": X[:1]})
    assert math.isnan(pairs.sqnr_db["b"])
    assert (pairs.worst_db, pairs.top1) == (-math.inf, 0.0)


def test_indices_are_as_many_as_there_are_and_no_bound_in_db_is_on_them() -> None:
    """NonMaxSuppression and NonZero give rows of integers, a few more or less."""
    pairs = PairedOutputs()
    pairs.update({"a": X, "kept": np.arange(6)}, {"a": X, "kept": np.arange(4)})
    pairs.update({"a": X, "kept": np.arange(6)}, {"a": X, "kept": np.arange(6)})
    assert pairs.sqnr_db == {"a": math.inf}
    assert (pairs.worst_db, pairs.top1) == (math.inf, 0.5)


def test_outputs_without_classes_have_no_agreement() -> None:
    pairs = PairedOutputs()
    pairs.update({"a": X[0]}, {"a": X[0]})
    with pytest.raises(CalibrationError, match="no output of shape"):
        _ = pairs.top1


def test_the_worst_part_of_an_output_counts() -> None:
    rng = np.random.default_rng(0)
    boxes, scores = rng.uniform(0, 320, (64, 4, 20)), rng.uniform(0, 1, (64, 17, 20))
    x = np.concatenate([boxes, scores], axis=1).astype(np.float32)
    y = x.copy()
    y[:, 4:] += 0.2 * rng.standard_normal(scores.shape).astype(np.float32)
    outputs = PairedOutputs()
    outputs.update({"y": x}, {"y": y})
    assert outputs.sqnr_db["y"] < 12
