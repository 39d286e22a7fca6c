from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.quantized.output_parts import PartSums

if TYPE_CHECKING:
    from onnxq.quantized.output_verdict import OutputPart

RNG = np.random.default_rng(0)


def worst(x: np.ndarray, error: np.ndarray | float, batch: int = 1) -> OutputPart | None:
    sums = PartSums()
    y = x + error
    for start in range(0, len(x), batch):
        sums.update(x[start : start + batch], y[start : start + batch])
    return sums.worst(60.0)


def detections(samples: int = 8, places: int = 400) -> np.ndarray:
    """(N, 4 boxes of 0 to 640 and 6 scores of 0 to 1, places)."""
    boxes = RNG.uniform(0, 640, (samples, 4, places))
    scores = RNG.uniform(0, 1, (samples, 6, places)) ** 4
    return np.concatenate([boxes, scores], axis=1).astype(np.float32)


def test_ruined_scores_beside_good_boxes_are_named() -> None:
    x = detections()
    error = RNG.normal(0, 1, x.shape) * 0.3
    found = worst(x, error)
    assert found is not None
    assert (found.axis, found.slices) == (1, (4, 5, 6, 7, 8, 9))
    scores = x[:, 4:].astype(np.float64)
    expected = 10 * np.log10((scores**2).sum() / (error[:, 4:] ** 2).sum())
    assert found.sqnr_db == pytest.approx(expected, abs=1e-3)
    assert str(found) == f"slices 4 to 9 of axis 1: {found.sqnr_db:.1f} dB"


def test_an_axis_behind_the_places_is_found_too() -> None:
    x = np.swapaxes(detections(), 1, 2)
    found = worst(x, 0.3)
    assert found is not None
    assert (found.axis, found.slices) == (2, (4, 5, 6, 7, 8, 9))


def test_classes_that_never_score_decide_nothing() -> None:
    x = detections()
    x[:, 6:] *= 0.01
    found = worst(x, 1e-3)
    assert found is not None
    assert found.slices == (4, 5)


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_batches_change_nothing(batch: int) -> None:
    x = detections()
    assert worst(x, 0.1, batch) == worst(x, 0.1, 2)


@pytest.mark.parametrize(
    "x",
    [
        RNG.normal(size=(16, 1000)),  # logits
        RNG.normal(size=(4, 16000)) * np.linspace(0, 1, 16000),  # a recording that grows louder
        RNG.normal(size=(8, 50, 32)),  # a sequence of features
        RNG.uniform(0, 1, (8, 2, 32, 32)),  # a mask
        np.zeros((8, 50, 32)),
    ],
    ids=["logits", "recording", "sequence", "mask", "zeros"],
)
def test_outputs_of_one_kind_have_no_parts(x: np.ndarray) -> None:
    assert worst(x.astype(np.float32), 0.1) is None


def test_a_pause_that_moves_from_sample_to_sample_is_no_part() -> None:
    x = RNG.normal(size=(8, 100, 16)).astype(np.float32)
    for sample in range(8):
        x[sample, 10 * sample : 10 * sample + 20] *= 1e-3
    x[:7, 90:] *= 1e-3
    assert worst(x, 0.01) is None


def test_zeros_of_padding_are_no_part() -> None:
    x = RNG.normal(size=(8, 100, 16)).astype(np.float32)
    x[:, 60:] = 0
    assert worst(x, 0.01) is None


def test_a_part_as_near_to_float_as_the_whole_is_not_named() -> None:
    x = detections()
    sums = PartSums()
    sums.update(x, x + 0.3)
    found = sums.worst(60.0)
    assert found is not None
    assert sums.worst(found.sqnr_db + 0.05) is None


def test_an_axis_whose_size_changes_is_not_looked_at() -> None:
    sums = PartSums()
    for places in (300, 400):
        x = detections(1, places)
        sums.update(x, x + 0.3)
    found = sums.worst(60.0)
    assert found is not None
    assert found.axis == 1


def test_power_that_falls_evenly_along_an_axis_is_no_part() -> None:
    spectrum = RNG.normal(size=(8, 80, 64)) * np.geomspace(1, 1e-3, 80)[:, None]
    assert worst(spectrum.astype(np.float32), 0.01) is None
    logits = RNG.normal(size=(64, 4096)) / np.arange(1, 4097)
    assert worst(logits.astype(np.float32), 0.001) is None


def test_columns_of_a_mask_are_no_parts() -> None:
    """Text ends at the same column in all samples; the next one is hardly a text's any more."""
    mask = np.full((12, 1, 96, 160), 1e-4)
    mask[:, :, 30:60, :100] = RNG.uniform(0.7, 1, (12, 1, 30, 100))
    mask[:, :, 30:60, 100] = 0.06
    assert worst(mask.astype(np.float32), 0.02) is None
    assert worst(np.moveaxis(mask, 1, 3).astype(np.float32), 0.02) is None


@pytest.mark.parametrize("axis", [1, 3])
def test_channels_of_a_picture_are_parts(axis: int) -> None:
    depth, mask = RNG.uniform(0, 80, (4, 1, 32, 48)), RNG.normal(0, 2, (4, 1, 32, 48))
    x = np.moveaxis(np.concatenate([depth, mask], 1), 1, axis).astype(np.float32)
    found = worst(x, 1.0)
    assert found is not None
    assert (found.axis, found.slices) == (axis, (1,))


def test_a_lost_slice_among_others_of_its_power_is_named() -> None:
    x = RNG.normal(0, 3, (256, 20))
    error = RNG.normal(0, 0.02, x.shape)
    error[:, 7] = -x[:, 7]
    found = worst(x.astype(np.float32), error)
    assert found is not None
    assert (found.axis, found.slices) == (1, (7,))
    assert found.sqnr_db == pytest.approx(0, abs=1e-3)
    assert worst(x.astype(np.float32), 3.0) is None  # where all are lost, the whole says so
