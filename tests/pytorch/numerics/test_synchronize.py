"""Knowledge of ranks is brought together; the processes are in test_ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from onnxq.observers import MinMaxObserver, MovingAverageMinMaxObserver
from onnxq.pytorch import FakeQuantize, LearnableFakeQuantize, synchronize_ranks


@pytest.fixture(autouse=True)
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of two; the other one has twice its values."""

    def all_reduce(tensor: Tensor, op: Any = distributed.ReduceOp.SUM) -> None:
        tensor.mul_(2 if op == distributed.ReduceOp.MAX else 3)

    for place in ("ranks", "all_observers"):
        monkeypatch.setattr(f"onnxq.pytorch.numerics.{place}.has_ranks", lambda: True)
    monkeypatch.setattr(distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)


@pytest.mark.parametrize(
    ("kind", "factor"), [(MinMaxObserver, 2), (MovingAverageMinMaxObserver, 1.5)]
)
def test_ranges_are_the_widest_and_averages_the_mean(kind: object, factor: float) -> None:
    fake = FakeQuantize(kind)
    fake(torch.tensor([0.0, 51.0]))
    synchronize_ranks(nn.Sequential(fake.disable_observer()))
    assert fake.max_val.item() == 51 * factor
    assert fake.scale.item() == pytest.approx(0.2 * factor)


def test_running_statistics_are_averaged_and_learned_scales_left_alone() -> None:
    norm, learned = nn.BatchNorm1d(2), LearnableFakeQuantize(MinMaxObserver)
    learned(torch.tensor([0.0, 51.0]))
    synchronize_ranks(nn.Sequential(norm, learned))
    assert norm.running_var is not None
    assert norm.running_var.tolist() == [1.5, 1.5]
    assert learned.scale.item() == pytest.approx(0.2)
