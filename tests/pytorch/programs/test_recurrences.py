from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import onnxq
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.programs.program import Open, program_of
from onnxq.pytorch.programs.training_graph import training_graph

X, LENGTHS = torch.randn(3, 6, 4), torch.tensor([2, 6, 4])


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
        self.end = nn.Linear(10, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        given = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y = pad_packed_sequence(self.layer(given)[0], batch_first=True, total_length=x.shape[1])[0]
        out: torch.Tensor = self.end(y)
        return out


class OwnWeights(nn.Module):
    """A recurrence that no layer of torch.nn calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.GRU(4, 5)._flat_weights)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        given = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        run: Any = torch.gru  # whose types want lists
        h = torch.zeros(1, x.shape[0], 5)
        options = (True, 1, 0.0, False, False)
        last: torch.Tensor = run(given.data, given.batch_sizes, h, list(self.weights), *options)[1]
        return last


@pytest.mark.parametrize("kind", [Packed, OwnWeights])
def test_gradients_are_those_of_packed_sequences(kind: type[nn.Module]) -> None:
    model = kind()
    program = program_of(model, (X, LENGTHS), left_open=Open.LENGTHS)
    traced = training_graph(copy.deepcopy(model), program)
    longer = torch.randn(2, 8, 4), torch.tensor([8, 3])
    results = [made(*longer) for made in (traced, model)]
    torch.testing.assert_close(*results)
    for result in results:
        result.square().mean().backward()
    trained = dict(traced.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(trained[name].grad, parameter.grad)


@pytest.mark.nightly
def test_packed_sequences_are_deployed_as_trained() -> None:
    trained = prepare_qat(Packed(), inputs=(X, LENGTHS))
    trained(X, LENGTHS).square().mean().backward()
    torch.optim.SGD(trained.parameters(), lr=0.01).step()
    int8 = convert(trained.apply(disable_observer).eval())
    assert torch.equal(int8(X, LENGTHS), trained(X, LENGTHS))
    deployed = export(int8, (X, LENGTHS))
    feeds = {"x": X.numpy(), "lengths": LENGTHS.numpy()}
    assert onnxq.cross_check(deployed, onnxq.Samples([feeds], batch_size=3)).differing == 0
