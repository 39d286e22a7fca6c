"""Dynamically quantized torch.ao modules run in ONNX Runtime with the integers of torch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao import quantization as tq

from onnxq.pytorch.importers import import_quantized
from tests.exact_engine import exact
from tests.torch_ao_models import Stubbed, eager, engine

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning"),
]
X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(16, 24, batch_first=True, bidirectional=True)
        self.gru, self.fc = nn.GRU(48, 24, batch_first=True), nn.Linear(24, 12)
        self.cells = nn.ModuleList([nn.LSTMCell(12, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        long, short, plain = self.cells
        x, _ = self.lstm(x)
        x, _ = self.gru(x)
        h, _ = long(self.fc(x)[:, -1])
        return plain(short(h))  # type: ignore[no-any-return]


KINDS = {nn.LSTM, nn.GRU, nn.Linear, nn.LSTMCell, nn.GRUCell, nn.RNNCell}


def quantized(model: nn.Module, backend: str, dtype: torch.dtype = torch.qint8) -> nn.Module:
    with engine(backend):
        made: nn.Module = tq.quantize_dynamic(model.eval(), KINDS, dtype=dtype)
        return made


def difference(model: nn.Module, backend: str) -> tuple[float, Counter[str]]:
    exported = import_quantized(model, X)
    with exact(exported) as session:
        got = session.run({exported.graph.inputs[0].name or "": X.numpy()})[0]
    with engine(backend), torch.no_grad():
        wanted = model(X).numpy()
    return float(np.abs(got - wanted).max()), Counter(n.op_type for n in exported.graph)


def test_every_module_gives_what_torch_gives_where_torch_uses_8_bits() -> None:
    """qnnpack takes activations of 8 bits, as ONNX Runtime does."""
    largest, counts = difference(quantized(Layers(), "qnnpack"), "qnnpack")
    assert largest <= 1e-6
    assert counts["DynamicQuantizeLSTM"] == 2  # one for each direction: each has its own scale
    assert counts["Scan"] + counts["Loop"] == 1  # the GRU's steps, on integers
    assert counts["Gemm"] == 0


def test_a_linear_layer_is_within_an_lsb_of_both_activations() -> None:
    """fbgemm takes 7 bits of the activation, ONNX Runtime 8: half an LSB of each, times sum |w|."""
    layer = nn.Sequential(nn.Linear(16, 12))
    model: Any = quantized(layer, "fbgemm")
    largest, counts = difference(model, "fbgemm")
    spread = float(X.clamp(min=0).max() - X.clamp(max=0).min())
    weight = model[0].weight().dequantize().abs().sum(1).max()
    assert largest <= 0.5 * (spread / 127 + spread / 255) * float(weight) + 1e-6
    assert counts["Gemm"] + counts["MatMul"] == 0


def test_float16_weights_are_stored_as_float16() -> None:
    model = quantized(nn.Sequential(nn.Linear(16, 12)), "fbgemm", torch.float16)
    largest, _ = difference(model, "fbgemm")
    assert largest <= 1e-5


def test_static_and_dynamic_modules_may_be_in_one_model() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = Stubbed(), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x))  # type: ignore[no-any-return]

    model = Both().eval()
    with engine("fbgemm"):
        model.body = tq.convert(eager("fbgemm"))
        model = tq.quantize_dynamic(model, {"head"})
    images = torch.randn(4, 3, 16, 16)
    counts = Counter(n.op_type for n in import_quantized(model, images).graph)
    assert counts["DynamicQuantizeLinear"] == 1
    assert counts["Gemm"] == 1  # between Q and DQ
    assert counts["Conv"] == 2
