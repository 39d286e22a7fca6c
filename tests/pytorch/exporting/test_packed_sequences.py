from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from onnxq.pytorch.exporting.packed_sequences import run_recurrence, up_to_longest
from onnxq.pytorch.exporting.quiet import quiet_exporter
from onnxq.pytorch.exporting.whole_layers import WholeLayers

if TYPE_CHECKING:
    from collections.abc import Callable

X, LENGTHS = torch.randn(3, 6, 4), torch.tensor([2, 5, 4])
BOTH: dict[str, Any] = {"batch_first": True, "bidirectional": True, "num_layers": 2}


class Packed(nn.Module):
    """Layers on packed sequences, with a function on their data ahead of the second one."""

    def __init__(self, layer: nn.RNNBase, total_length: int | None, value: float = 0.0) -> None:
        super().__init__()
        self.layer, self.total_length, self.value = layer, total_length, value

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, state = self.layer(PackedSequence(given.data.cos(), *given[1:]))
        padded, ends = pad_packed_sequence(y, True, self.value, self.total_length)
        return padded, *(state if isinstance(state, tuple) else (state,)), ends


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(("total_length", "value"), [(None, 0.0), (6, -1.0), (8, 0.0)])
def test_padded_sequences_give_what_packed_ones_do(
    kind: Callable[..., nn.RNNBase], total_length: int | None, value: float
) -> None:
    model = Packed(kind(4, 5, **BOTH), total_length, value).eval()
    with WholeLayers(), torch.no_grad():
        got = model(X, LENGTHS)
    for one, wanted in zip(got, model(X, LENGTHS), strict=True):
        torch.testing.assert_close(one, wanted)


def test_a_program_leaves_batch_and_length_open_and_sorts_nothing() -> None:
    model = Packed(nn.GRU(4, 5, **BOTH), None).eval()
    batch = torch.export.Dim("batch")
    shapes = {"x": {0: batch, 1: torch.export.Dim("steps")}, "lengths": {0: batch}}
    with quiet_exporter(), WholeLayers():
        program = torch.export.export(model, (X, LENGTHS), dynamic_shapes=shapes, strict=False)
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("onnxq.recurrence.default") == 1
    assert not [t for t in targets if "sort" in t or "index_select" in t]


def test_states_are_those_at_the_end_of_each_sequence() -> None:
    layer = nn.LSTM(4, 5)
    h = torch.randn(1, 3, 5)
    options = (True, 1, 0.0, False, False, False, "lstm")
    steps = X.transpose(0, 1)
    weights: Any = layer._flat_weights
    y, last, c = run_recurrence(steps, LENGTHS, [h, h], weights, *options)
    for row, length in enumerate(LENGTHS):
        alone, (end, cell) = layer(steps[:length, row : row + 1], (h[:, [row]], h[:, [row]]))
        torch.testing.assert_close(y[:length, row : row + 1], alone)
        torch.testing.assert_close(last[:, [row]], end)
        torch.testing.assert_close(c[:, [row]], cell)
        assert not y[length:, row].any()


def test_what_is_cut_has_no_gradient() -> None:
    steps = X.transpose(0, 1).clone().requires_grad_()
    cut = up_to_longest(steps, LENGTHS)
    assert cut.shape == (5, 3, 4)
    torch.autograd.backward(cut.sum())
    assert steps.grad is not None
    assert steps.grad[:5].eq(1).all()
    assert not steps.grad[5:].any()
