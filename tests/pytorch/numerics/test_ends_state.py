"""Ends in a state_dict: PyTorch's names, and checkpoints from before."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.pytorch.numerics.ends_state import save_ends, take_ends

LOW, HIGH = torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 0.5])
ENDS = torch.stack([-LOW, HIGH])


def test_what_was_saved_is_taken_back_out() -> None:
    state: dict[str, Tensor] = {"a.other": torch.ones(1)}
    save_ends(state, "a.", ENDS)
    assert torch.equal(state["a.min_val"], LOW)
    assert torch.equal(state["a.max_val"], HIGH)
    found = take_ends(state, "a.")
    assert found is not None
    assert torch.equal(found, ENDS)
    assert list(state) == ["a.other"]
    assert take_ends(state, "a.") is None
