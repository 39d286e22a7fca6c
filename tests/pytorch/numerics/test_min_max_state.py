"""Min and max in a state_dict have PyTorch's names."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.pytorch.numerics.min_max import save_min_max, take_min_max

LOW, HIGH = torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 0.5])
MIN_MAX = torch.stack([-LOW, HIGH])


def test_what_was_saved_is_taken_back_out() -> None:
    state: dict[str, Tensor] = {"a.other": torch.ones(1)}
    save_min_max(state, "a.", MIN_MAX)
    assert torch.equal(state["a.min_val"], LOW)
    assert torch.equal(state["a.max_val"], HIGH)
    found = take_min_max(state, "a.", [])
    assert found is not None
    assert torch.equal(found, MIN_MAX)
    assert list(state) == ["a.other"]
    missing: list[str] = []
    assert take_min_max(state, "a.", missing) is None
    assert missing == ["a.min_val", "a.max_val"]
