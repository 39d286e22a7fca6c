from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxq.pytorch import export
from onnxq.pytorch.exporting.whole_layers import WholeLayers

pytestmark = pytest.mark.oracle

AXES = {"input": {0: "steps", 1: "batch"}}


@pytest.mark.parametrize(
    "layer",
    [nn.LSTM(4, 5, 2, bidirectional=True), nn.GRU(4, 5, bias=False), nn.RNN(4, 5)],
    ids=["lstm", "gru", "rnn"],
)
def test_the_length_of_a_sequence_can_be_dynamic(layer: nn.Module) -> None:
    model = export(layer, torch.ones(3, 2, 4), dynamic_axes=AXES)  # raises where it is not
    shape = model.graph.outputs[0].shape
    assert shape is not None
    assert [str(n) for n in shape][:2] == ["steps", "batch"]
    kinds = [node.op_type for node in model.graph]
    assert kinds.count(type(layer).__name__) == getattr(layer, "num_layers")  # noqa: B009  # typed
    assert kinds.count("Shape") <= 2  # of the zeros that it starts from
    shapes = [n.inputs[1] for n in model.graph if n.op_type == "Reshape"]
    assert all(shape is not None and shape.is_initializer() for shape in shapes)


def test_the_operators_compute_what_torch_does_and_packed_sequences_stay() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 4)
    for layer in (
        nn.LSTM(4, 5, 2).eval(),
        nn.GRU(4, 5, bidirectional=True).eval(),
        nn.RNN(4, 5).eval(),
    ):
        with WholeLayers():
            got = layer(x)[0]
        torch.testing.assert_close(got, layer(x)[0])  # oneDNN's kernel or torch's own
        packed = nn.utils.rnn.pack_sequence([x[:, 0], x[:2, 1]])
        with WholeLayers():
            inside = layer(packed)[0].data
        torch.testing.assert_close(inside, layer(packed)[0].data)
