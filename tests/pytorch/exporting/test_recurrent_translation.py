from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from onnxq.ort import runtime
from onnxq.pytorch import export

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.oracle

X, LENGTHS = torch.randn(3, 6, 4), torch.tensor([5, 4, 2])


class Packed(nn.Module):
    def __init__(self, layer: nn.RNNBase, *, is_sorted: bool = False) -> None:
        super().__init__()
        self.layer, self.is_sorted = layer, is_sorted

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = pack_padded_sequence(x, lengths, True, self.is_sorted)
        y, state = self.layer(given)
        return pad_packed_sequence(y, batch_first=True)[0], state[0]


def gru(**options: Any) -> nn.RNNBase:
    return nn.GRU(4, 5, 2, batch_first=True, bidirectional=True, **options)


LAYERS: list[Any] = [
    gru,
    pytest.param(lambda: gru(bias=False), marks=pytest.mark.nightly),
    pytest.param(lambda: nn.LSTM(4, 5, batch_first=True), marks=pytest.mark.nightly),
    pytest.param(lambda: nn.RNN(4, 5, 2, "relu", batch_first=True), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("make", LAYERS)
def test_onnx_runtime_computes_what_packed_sequences_give(
    make: Callable[[], nn.RNNBase],
) -> None:
    layer = make()
    model = Packed(layer).eval()
    made = export(model, (X, LENGTHS))
    nodes = [node for node in made.graph if node.op_type == type(layer).__name__]
    assert len(nodes) == layer.num_layers
    assert all(node.inputs[4] is not None for node in nodes), "sequence_lens"
    with runtime.open_session(made, threads=1) as session:
        for lengths in (torch.tensor([1, 6]), torch.tensor([3, 1])):
            feeds = {"x": X[:2].numpy(), "lengths": lengths.numpy()}
            for got, wanted in zip(session.run(feeds), model(X[:2], lengths), strict=True):
                np.testing.assert_allclose(
                    np.asarray(got, np.float32), wanted.detach().numpy(), atol=1e-6
                )


@pytest.mark.nightly
def test_lengths_that_have_to_be_sorted_leave_the_batch_open() -> None:
    made = export(Packed(gru(), is_sorted=True), (X, LENGTHS))
    shape = made.graph.inputs[0].shape
    assert shape is not None
    assert str(shape[0]) == "batch"
