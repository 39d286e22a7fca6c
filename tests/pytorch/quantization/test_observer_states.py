"""States of observers, saved apart from the weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onnxq.pytorch.quantization as tq
from onnxq.errors import ModelError


def prepared() -> nn.Module:
    model = tq.QuantWrapper(nn.Linear(6, 3)).eval()
    model.qconfig = tq.default_qconfig  # type: ignore[assignment]
    return tq.prepare(model)


def test_what_was_observed_is_loaded_and_weights_stay() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 6)
    one, other = prepared(), prepared()
    one(x)
    state = tq.get_observer_state_dict(one)
    assert state
    assert not any("weight" in name for name in state)
    tq.load_observer_state_dict(other, state)
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in state.items())
    assert not torch.equal(one.module.weight, other.module.weight)  # type: ignore[union-attr, arg-type]


def test_entries_that_do_not_fit_are_named() -> None:
    state = tq.get_observer_state_dict(prepared())
    gone = next(iter(state))
    with pytest.raises(ModelError, match=f"{gone}' are missing"):
        tq.load_observer_state_dict(prepared(), {k: v for k, v in state.items() if k != gone})
    with pytest.raises(ModelError, match="belong to no observer"):
        tq.load_observer_state_dict(prepared(), {**state, "other.scale": state[gone]})
