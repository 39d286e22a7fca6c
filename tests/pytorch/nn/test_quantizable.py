"""MultiheadAttention of quantizable parts, with stubs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch import (
    DeQuantStub,
    FloatFunctional,
    QuantStub,
    convert,
    disable_observer,
    export,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.nn import qat, quantizable
from onnxq.pytorch.nn import quantized as nnq
from onnxq.qconfig import get_default_qat_qconfig, get_default_qconfig

PADDED = torch.arange(6).expand(4, 6) >= torch.tensor([[3], [4], [5], [6]])


class Net(nn.Module):
    """Attends with padding, adds and classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant, self.add = QuantStub(), DeQuantStub(), FloatFunctional()
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 6, 5), (N, 6, 6)."""
        x = self.quant(x)
        y, attn_weights = self.attend(x, x, x, key_padding_mask=padding)
        return self.dequant(self.head(self.add.add(x, y))), attn_weights


def net() -> tuple[Any, Tensor, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    model: Any = Net()
    x = torch.randn(4, 6, 16)
    nn.init.normal_(model.attend.in_proj_bias, std=0.1)
    with torch.no_grad():
        return model, x, model(x, PADDED)


def test_it_trains_and_runs_in_integers() -> None:
    model, x, wanted = net()
    model.train().qconfig = get_default_qat_qconfig()
    trained: Any = prepare_qat(model)
    assert type(trained.attend) is quantizable.MultiheadAttention
    assert type(trained.attend.linear_Q) is qat.Linear
    trained(x, PADDED)[0].square().mean().backward()
    keys: Any = trained.attend.linear_K
    assert keys.weight.grad is not None
    trained.apply(disable_observer).eval()
    quantized: Any = convert(trained)
    assert type(quantized.attend.out_proj) is nnq.Linear
    with torch.no_grad():
        got, kept = quantized(x, PADDED), trained(x, PADDED)
    step = float(quantized.head.scale)
    assert float((got[0] - kept[0]).abs().max()) <= 2.01 * step
    assert float((got[0] - wanted[0]).abs().mean()) <= 2 * step
    exported = export(quantized, {"x": x, "padding": PADDED})
    operators = Counter(node.op_type for node in exported.graph)
    assert (operators["Gemm"], operators["MatMul"]) == (5, 2)


def test_post_training_and_back() -> None:
    model, x, wanted = net()
    model.eval().qconfig = get_default_qconfig()
    prepared: Any = prepare(model)
    prepared(x, PADDED)
    quantized: Any = convert(prepared)
    model.attend = quantized.attend.dequantize()
    with torch.no_grad():
        got = model(x, PADDED)
    assert torch.allclose(got[0], wanted[0], atol=0.02)


@pytest.mark.parametrize("options", [{}, {"kdim": 8, "vdim": 12, "bias": False}])
def test_it_computes_what_torch_computes_and_goes_back(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    source = nn.MultiheadAttention(16, 2, **options)
    q, k = torch.randn(6, 4, 16), torch.randn(6, 4, options.get("kdim", 16))
    v = torch.randn(6, 4, options.get("vdim", 16))
    mask = torch.full((6, 6), -torch.inf).triu(1)
    made = quantizable.MultiheadAttention.from_float(source)
    for module in (made, made.dequantize()):
        got = module(q, k, v, PADDED, attn_mask=mask < 0, average_attn_weights=False)
        wanted = source(q, k, v, PADDED, attn_mask=mask < 0, average_attn_weights=False)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, wanted, strict=True))
    got = made(q[:, 0], k[:, 0], v[:, 0], need_weights=False)
    assert torch.allclose(got[0], source(q[:, 0], k[:, 0], v[:, 0])[0], atol=1e-5)


def test_what_it_does_not_do_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="add_bias_kv=True and add_zero_attn=True"):
        quantizable.MultiheadAttention(16, 2, add_zero_attn=True)
    with pytest.raises(ModelError, match=r"got Linear; wanted nn\.MultiheadAttention"):
        quantizable.MultiheadAttention.from_float(nn.Linear(2, 2))
    x = torch.randn(6, 4, 16)
    with pytest.raises(ModelError, match="give the mask"):
        quantizable.MultiheadAttention(16, 2)(x, x, x, is_causal=True)
