from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch import export, prepare_qat
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.arguments.forward import first_run

if TYPE_CHECKING:
    from collections.abc import Callable


class Packed(nn.Module):
    def __init__(self, kind: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(4, 5, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y: torch.Tensor = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
        return y


INPUTS = (torch.zeros(3, 6, 4), torch.tensor([6, 4, 2]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_are_refused_with_the_remedy(kind: type[nn.RNNBase]) -> None:
    model = Packed(kind)
    with pytest.raises(UnsupportedError, match=r"\(4, 5\) a packed sequence.*padded"):
        first_run(model, bind(model, INPUTS))
    assert model(*INPUTS).shape == (3, 6, 5)  # outside it runs as ever


def test_export_and_training_say_so() -> None:
    with pytest.raises(UnsupportedError, match="packed sequence"):
        export(Packed(nn.GRU).eval(), INPUTS)
    with pytest.raises(UnsupportedError, match="packed sequence"):
        prepare_qat(Packed(nn.GRU), inputs=INPUTS)


def test_the_remedy_has_the_same_results_up_to_each_length() -> None:
    model, (_, lengths) = Packed(nn.LSTM), INPUTS
    x = torch.randn(3, 6, 4)
    packed, padded = model(x, lengths), model.rnn(x)[0]
    for row, length in enumerate(lengths):
        torch.testing.assert_close(padded[row, :length], packed[row, :length])


def test_what_forward_says_is_kept() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ModelError, match=r"Linear fails on the example inputs .*mat1"):
        first_run(model, bind(model, torch.zeros(1, 4)))
