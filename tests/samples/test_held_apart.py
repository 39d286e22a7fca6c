from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, QConfigError
from onnxq.samples import InputSpec, open_samples
from onnxq.samples.excerpt import held_apart

X = InputSpec("x", np.dtype(np.float32), ("N", 1))


def numbers(count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.arange(count, dtype=np.float32)[:, None]


def test_every_fourth_batch_is_held_apart_and_the_rest_keeps_its_order() -> None:
    rest, apart = held_apart(open_samples({"x": numbers(9)}, [X]), 4)
    assert [float(batch["x"][0, 0]) for batch in rest] == [0, 1, 2, 4, 5, 6, 8]
    assert [float(batch["x"][0, 0]) for batch in apart] == [3, 7]
    assert (rest.count, apart.count) == (7, 2)
    assert [float(batch["x"][0, 0]) for batch in apart] == [3, 7]  # again


def test_too_few_batches_are_refused_with_the_remedy() -> None:
    with pytest.raises(CalibrationError, match=r"3 batches, .* at least 4\. Give more samples"):
        held_apart(open_samples({"x": numbers(3)}, [X]), 4)


@pytest.mark.parametrize("every", [1, 0, 2.0, True])
def test_only_whole_numbers_from_two_hold_apart(every: int) -> None:
    with pytest.raises(QConfigError, match=r"hold_apart is .*; wanted a whole number from 2"):
        held_apart(open_samples({"x": numbers(9)}, [X]), every)
