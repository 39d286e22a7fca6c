"""Min and max in a state_dict: PyTorch's names, and checkpoints from before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from onnxq.observers import (
    MinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
)
from onnxq.pytorch import FakeQuantize
from onnxq.pytorch.numerics.min_max_state import save_min_max, take_min_max

LOW, HIGH = torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 0.5])
MIN_MAX = torch.stack([-LOW, HIGH])


def test_what_was_saved_is_taken_back_out() -> None:
    state: dict[str, Tensor] = {"a.other": torch.ones(1)}
    save_min_max(state, "a.", MIN_MAX)
    assert torch.equal(state["a.min_val"], LOW)
    assert torch.equal(state["a.max_val"], HIGH)
    found = take_min_max(state, "a.")
    assert found is not None
    assert torch.equal(found, MIN_MAX)
    assert list(state) == ["a.other"]
    assert take_min_max(state, "a.") is None


@pytest.mark.parametrize(
    ("observer", "older", "low", "high"),
    [
        (MinMaxObserver, {"min": -1.5, "max": 2.0}, -1.5, 2.0),
        (
            MovingAveragePerChannelMinMaxObserver,
            {"index": [0], "min": [[-1.0, -2.0]], "max": [[3.0, 0.5]]},
            [-1.0, -2.0],
            [3.0, 0.5],
        ),
        (NarrowRangeObserver, {"absmax": [1.0, 2.0]}, [-1.0, -2.0], [1.0, 2.0]),
    ],
)
def test_checkpoints_of_older_versions_load(
    observer: object, older: dict[str, Any], low: Any, high: Any
) -> None:
    fake = FakeQuantize(observer)
    state = fake.state_dict()
    for name in ("min_val", "max_val", "left_out"):
        del state[name]
    state |= {f"seen_{name}": torch.tensor(value) for name, value in older.items()}
    state["has_observed"] = torch.tensor([1], dtype=torch.uint8)
    fake.load_state_dict(state)
    assert fake.min_val.tolist() == low
    assert fake.max_val.tolist() == high
    assert fake.has_observed
