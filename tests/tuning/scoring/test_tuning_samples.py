from __future__ import annotations

import numpy as np
import pytest

from onnxq.checking.check import Check
from onnxq.errors import CalibrationError
from onnxq.samples import InputSpec, Samples
from onnxq.tuning.scoring.tuning_samples import TuningSamples, open_tuning_samples

X = InputSpec("x", np.dtype(np.float32), ("N", 1))


def arrays(count: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return {"x": np.arange(count, dtype=np.float32)[:, None], "y": np.arange(count)}


def opened(
    count: int = 12, check: Check = Check.CALIBRATION
) -> tuple[TuningSamples, TuningSamples]:
    return open_tuning_samples(Samples(arrays(count)), check, [X])


def test_no_sample_chooses_and_checks() -> None:
    search, apart = opened()
    assert sorted([*search["y"], *apart["y"]]) == list(range(12))
    assert apart["y"].tolist() == [3, 7, 11]
    assert (search.rows, apart.rows) == (9, 3)


def test_with_samples_to_check_on_all_others_are_searched_on() -> None:
    search, apart = opened(12, Check(arrays(2)))
    assert (search.rows, apart.rows) == (12, 2)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(CalibrationError, match="3 batches, of which every 4th"):
        opened(3)


def test_calibration_sees_inputs_alone() -> None:
    assert all(set(batch) == {"x"} for batch in opened()[0].taken_by([X]))
    assert opened()[0].taken_by([X]).count == 9


def test_few_samples_are_spread_over_all() -> None:
    search = opened(16)[0]
    assert search.few(3)["y"].tolist() == [0, 5, 10]
    assert search.few(100).rows == search.rows
    assert search.few(0).rows == 1


def test_the_fingerprint_tells_samples_apart_labels_included() -> None:
    first, again = opened()[0], opened()[0]
    assert first.fingerprint == again.fingerprint
    first.batches[0]["y"][0] = 77
    assert first.fingerprint != again.fingerprint


def test_an_array_that_is_not_there_is_named() -> None:
    with pytest.raises(CalibrationError, match="no array 'z'; there are x, y"):
        _ = opened()[0]["z"]
