from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import InputSpec
from onnxq.samples.state import State

FLOAT = np.dtype(np.float32)


def state(*shape: int | str | None) -> State:
    inputs = (InputSpec("x", FLOAT, ("N", 3)), InputSpec("h", FLOAT, shape, optional=True))
    return State(inputs, {"h_out": "h"})


def batch(size: int = 2) -> dict[str, np.ndarray]:
    return {"x": np.ones((size, 3), np.float32)}


def test_the_first_state_is_zeros_of_the_batch_size() -> None:
    got = state("N", 4).feeds(batch())
    assert got["h"].tolist() == np.zeros((2, 4)).tolist()
    assert got["h"].dtype == FLOAT


def test_the_next_state_is_what_was_kept() -> None:
    kept = np.ones((2, 4), np.float32)
    fed = state("N", 4)
    fed.keep({"h_out": kept, "y": kept})
    assert fed.feeds(batch())["h"] is kept


def test_a_batch_with_its_own_state_starts_anew() -> None:
    fed = state("N", 4)
    fed.keep({"h_out": np.ones((2, 4), np.float32)})
    own = np.full((2, 4), 5, np.float32)
    assert fed.feeds({**batch(), "h": own})["h"] is own


def test_a_state_that_does_not_fit_the_batch_is_refused() -> None:
    fed = state("N", 4)
    fed.keep({"h_out": np.ones((2, 4), np.float32)})
    with pytest.raises(CalibrationError, match=r"'h' is fed back with shape \(2, 4\)"):
        fed.feeds(batch(3))
