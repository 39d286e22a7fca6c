from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.checking.cross_check import cross_check
from onnxq.errors import QConfigError, ShapeError, UnsupportedError
from onnxq.ort.runtime import integer_nodes, optimized_graph
from onnxq.pytorch import export
from onnxq.pytorch import quantization as tq
from onnxq.pytorch.eager.convert import convert
from onnxq.pytorch.nn.quantized import dynamic as nnqd
from onnxq.qconfig import (
    QConfigDynamic,
    default_dynamic_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)
from onnxq.qtensor import quantize_per_tensor
from tests.exact_engine import exact

pytestmark = pytest.mark.oracle


class Everything(nn.Module):
    """Recurrences of all kinds, then cells."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 24, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(48, 64, bidirectional=True)
        self.rnn = nn.RNN(128, 5, nonlinearity="relu")
        self.fc = nn.Linear(5, 4)
        self.lstm_cell, self.gru_cell = nn.LSTMCell(4, 3), nn.GRUCell(3, 3)
        self.rnn_cell = nn.RNNCell(3, 7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.gru(self.lstm(x)[0].transpose(0, 1))[0]
        y = self.fc(self.rnn(y)[0])
        h, c = self.lstm_cell(y[-1])
        return y, c, self.rnn_cell(self.gru_cell(h))


def quantized(qconfig: QConfigDynamic) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = Everything().eval()
    for module in model.modules():
        module.qconfig = qconfig  # type: ignore[assignment]
    return model, convert(model)


@pytest.mark.parametrize("qconfig", [default_dynamic_qconfig, per_channel_dynamic_qconfig])
def test_layers_stay_near_float_and_equal_onnx_runtime(qconfig: QConfigDynamic) -> None:
    model, converted = quantized(qconfig)
    x = torch.randn(3, 5, 6)
    with torch.no_grad():
        floats, wanted = model(x), converted(x)
    for a, b in zip(floats, wanted, strict=True):
        assert (a - b).abs().max() < 0.05 * a.abs().max()
    exported = export(converted, x)
    uses = [use.op_type for use in integer_nodes(optimized_graph(exported))]
    assert uses.count("DynamicQuantizeLSTM") == 2
    assert uses.count("DynamicQuantizeMatMul") + uses.count("MatMulIntegerToFloat") == 7
    stored = {v.name: str(v.dtype) for v in exported.graph.initializers.values()}
    assert stored["gru.w_0"] == "INT8"
    with exact(exported) as session:
        found = session.run({"x": x.numpy()})
    for a, b in zip(found, wanted, strict=True):
        # gates are float32, and an integer may flip where they differ in the last bit
        assert np.abs(np.asarray(a, np.float32) - b.numpy()).max() <= 1e-6


def test_integers_alone_are_equal_bit_for_bit() -> None:
    layer: Any = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3, bias=False))
    for part in layer:
        part.qconfig = per_channel_dynamic_qconfig
    converted = convert(layer)
    x = torch.randn(4, 7)
    exported = export(converted, x)
    with exact(exported) as session:
        np.testing.assert_array_equal(session.run({"input": x.numpy()})[0], converted(x).numpy())
    found = cross_check(exported, [{"input": x.numpy()}])
    assert all(node.differing == 0 for node in found.nodes)


def test_states_go_in_and_out() -> None:
    lstm, gru = nn.LSTM(3, 4, 2), nn.GRU(3, 4, 2)
    x, h, c = torch.randn(6, 2, 3), torch.randn(2, 2, 4), torch.randn(2, 2, 4)
    made = nnqd.LSTM.from_float(lstm)
    whole, (h_end, c_end) = made(x, (h, c))
    wanted = lstm(x, (h, c))
    torch.testing.assert_close(whole, wanted[0], atol=0.05, rtol=0)
    torch.testing.assert_close(h_end, wanted[1][0], atol=0.05, rtol=0)
    torch.testing.assert_close(c_end, wanted[1][1], atol=0.05, rtol=0)
    whole, h_end = nnqd.GRU.from_float(gru)(x, h)
    torch.testing.assert_close(whole, gru(x, h)[0], atol=0.05, rtol=0)
    torch.testing.assert_close(h_end, gru(x, h)[1], atol=0.05, rtol=0)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(3, 4),
        nn.LSTM(3, 4, bidirectional=True),
        nn.GRU(3, 4, bias=False),
        nn.RNN(3, 4),
        nn.LSTMCell(3, 4),
        nn.GRUCell(3, 4),
        nn.RNNCell(3, 4, nonlinearity="relu"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_state_dict_round_trip_restores_the_numbers(layer: nn.Module) -> None:
    layer.qconfig = per_channel_dynamic_qconfig  # type: ignore[assignment]
    kind: Any = getattr(nnqd, type(layer).__name__)
    made = kind.from_float(layer)
    torch.manual_seed(1)
    other = kind.from_float(type(layer)(*_sizes(layer)))
    other.load_state_dict(made.state_dict())
    x = (
        torch.randn(2, 2, 3)
        if layer.__class__.__name__ in ("LSTM", "GRU", "RNN")
        else torch.randn(2, 3)
    )
    a, b = made(x), other(x)
    first = [y[0] if isinstance(y, tuple) else y for y in (a, b)]
    assert torch.equal(*first)
    assert "DynamicQuantized" in repr(made)


def _sizes(layer: Any) -> tuple[Any, ...]:
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if isinstance(layer, nn.RNN):
        return 3, 4, 1, layer.nonlinearity
    if isinstance(layer, nn.RNNBase):
        return 3, 4, 1, layer.bias, False, 0.0, layer.bidirectional
    if isinstance(layer, nn.RNNCell):
        return 3, 4, True, layer.nonlinearity
    return 3, 4


def test_linear_takes_weights_as_torch_does() -> None:
    layer = nnqd.Linear(3, 2)
    stored = quantize_per_tensor(np.ones((2, 3), np.float32), 0.1, 3, "qint8")
    layer.set_weight_bias(stored, torch.tensor([1.0, 2.0]))
    assert layer.weight().equal(stored)
    torch.testing.assert_close(layer(torch.ones(1, 3)), torch.tensor([[4.0, 5.0]]))
    assert repr(layer) == "DynamicQuantizedLinear(in_features=3, out_features=2, dtype=int8)"
    with pytest.raises(ShapeError, match="wanted"):
        nnqd.Linear(2, 2).set_weight_bias(stored, None)


def test_refusals_name_the_remedy() -> None:
    static = nn.Linear(2, 2)
    static.qconfig = get_default_qconfig()  # type: ignore[assignment]
    with pytest.raises(QConfigError, match="QConfigDynamic"):
        nnqd.Linear.from_float(static)
    with pytest.raises(UnsupportedError, match="proj_size"):
        nnqd.LSTM.from_float(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(UnsupportedError, match="got a"):
        nnqd.LSTM.from_float(nn.GRU(3, 4))
    with pytest.raises(UnsupportedError, match="unsqueeze"):
        nnqd.GRU(3, 4)(torch.zeros(5, 3))
    with pytest.raises(QConfigError, match="nonlinearity"):
        nnqd.RNNCell(3, 4, nonlinearity="gelu")
    with pytest.raises(QConfigError, match="nonlinearity"):
        nnqd.RNN(3, 4, nonlinearity="gelu")


class EveryRecurrence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True)
        self.gru, self.rnn = nn.GRU(24, 8), nn.RNN(8, 6, nonlinearity="relu")
        self.cells = nn.ModuleList([nn.LSTMCell(6, 5), nn.GRUCell(5, 4), nn.RNNCell(4, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.rnn(self.gru(self.lstm(x)[0])[0])[0][:, 0]
        h: torch.Tensor = self.cells[0](y)[0]
        z: torch.Tensor = self.cells[2](self.cells[1](h))
        return z


def test_recurrences_store_weights_as_float16_and_compute_in_float() -> None:
    model, x = EveryRecurrence().eval(), torch.randn(3, 4, 16)
    made = tq.quantize_dynamic(model, dtype=torch.float16)
    halves = [name for name, b in made.named_buffers() if b.dtype is torch.float16]
    assert len(halves) == 2 * (2 + 1 + 1 + 3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "weight" in name:
                p.copy_(p.half().float())
        wanted = model(x)
    torch.testing.assert_close(made(x), wanted, rtol=0, atol=1e-6)
    assert {"LSTM", "GRU", "RNN"} <= {node.op_type for node in export(made, x).graph}
