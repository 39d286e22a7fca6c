"""Few numbers of a module that stay exact."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onnxq.pytorch.numerics.exact_buffers import ExactBuffers


def made() -> Any:
    module = ExactBuffers()
    module.register_buffer("held", torch.tensor([1 / 3]))
    module.learned = nn.Parameter(torch.tensor([1 / 7]))
    return module


def test_a_cast_to_half_precision_leaves_them_as_they_are() -> None:
    model: Any = nn.Sequential(made(), nn.Linear(2, 2)).to(torch.bfloat16)
    assert model[0].held.item() == torch.tensor(1 / 3).item()
    assert model[0].learned.dtype == torch.float32
    assert model[1].weight.dtype == torch.bfloat16


def test_values_are_written_in_place_and_a_parameter_stays_the_same_one() -> None:
    module = made()
    held, learned = module.held, module.learned
    module.set_tensor("held", torch.tensor([2.0]))
    assert module.held is held
    module.set_tensor("held", torch.tensor([2.0, 3.0]))
    module.set_tensor("learned", torch.tensor([2.0, 3.0]))
    assert module.held.tolist() == [2.0, 3.0]
    assert module.learned is learned
    assert learned.tolist() == [2.0, 3.0]


def test_a_checkpoint_with_other_channels_fits_and_another_rank_does_not() -> None:
    module = made()
    module.fit({"p.held": torch.ones(4), "p.learned": torch.ones(())}, "p.")
    assert (module.held.shape, module.learned.shape) == ((4,), (1,))
