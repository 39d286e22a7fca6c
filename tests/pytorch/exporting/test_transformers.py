"""torch's transformers reach ONNX whatever shortcuts they take in eval mode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import transformer

import onnxq
from onnxq.errors import VerificationError
from onnxq.ort import runtime
from onnxq.pytorch import export, prepare_qat
from onnxq.pytorch.exporting.trace import tracing

SIZES: dict[str, Any] = {"d_model": 32, "nhead": 4, "dim_feedforward": 64, "batch_first": True}


def encoder(*, nested: bool = True) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(**SIZES)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()


class Masked(nn.Module):
    """An encoder whose mask is made from the input's size, without the hint that it is causal."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y: torch.Tensor = self.encoder(x, mask=mask)
        return y


class Translator(nn.Module):
    """Encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.both = nn.Transformer(num_encoder_layers=1, num_decoder_layers=1, **SIZES)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        y: torch.Tensor = self.both(source, target, tgt_mask=mask)
        return y


class Padded(nn.Module):
    def __init__(self, *, nested: bool) -> None:
        super().__init__()
        self.encoder = encoder(nested=nested)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.encoder(x, src_key_padding_mask=padding)
        return y


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [Masked, Translator])
def test_a_mask_needs_no_hint_that_it_is_causal(kind: type[nn.Module]) -> None:
    module = kind().eval()
    given = [torch.randn(2, 7, 32) for _ in range(1 + (kind is Translator))]
    model = export(module, tuple(given))  # holds the values against the module's
    feeds = {
        str(x.name): torch.randn(5, 7, 32).numpy() for x in model.graph.inputs
    }  # another batch
    with runtime.open_session(model) as session:
        (y,) = session.run(feeds)
    with torch.no_grad():
        wanted = module(*[torch.from_numpy(x) for x in feeds.values()])
    torch.testing.assert_close(torch.from_numpy(y), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_the_masked_encoder_is_quantized() -> None:
    module, x = Masked().eval(), torch.randn(8, 7, 32)
    int8 = onnxq.quantize(export(module, x[:2]), {"x": x.numpy()}, target="x86-vnni")
    assert "QuantizeLinear" in {node.op_type for node in int8.graph}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_that_torch_zeroes_is_an_error_with_a_remedy() -> None:
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 5:] = True
    given = (torch.randn(2, 7, 32), padding)
    with pytest.raises(VerificationError, match="enable_nested_tensor=False"):
        export(Padded(nested=True).eval(), given)
    export(Padded(nested=False).eval(), given)


def test_the_shortcuts_of_torch_are_restored_once_a_module_was_traced() -> None:
    before = transformer._detect_is_causal_mask
    with tracing(encoder()):
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()
    assert transformer._detect_is_causal_mask is before


def test_layers_without_shortcuts_compute_what_torch_trains() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
    x, y = torch.randn(8, 6, 16), torch.randn(8, 6, 16)
    causal = nn.Transformer.generate_square_subsequent_mask(6)
    padded = torch.arange(6).expand(8, 6) >= torch.arange(3, 11)[:, None]
    wanted = model(x, y, tgt_mask=causal, src_key_padding_mask=torch.where(padded, -torch.inf, 0.0))
    with tracing(model.eval()), torch.no_grad():
        got = model(x, y, tgt_mask=causal, src_key_padding_mask=padded)
    assert torch.allclose(got, wanted, atol=1e-5)


class Experts(nn.Module):
    """Two experts, each token's chosen by its values, in the ways that transformers has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.Parameter(torch.randn(2, 8, 8))
        self.config = SimpleNamespace(way="grouped_mm")

    def get_experts_implementation(self) -> dict[str, str]:
        return {"": self.config.way}

    def set_experts_implementation(self, way: str | dict[str, str]) -> None:
        self.config.way = way if isinstance(way, str) else way[""]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = (x[:, 0] > 0).long()
        if self.config.way == "batched_mm":
            return torch.bmm(x.unsqueeze(1), self.weights[chosen]).squeeze(1)
        return torch.stack([row @ self.weights[int(i)] for row, i in zip(x, chosen, strict=True)])


def test_experts_of_transformers_are_traced_as_matmuls_of_gathered_weights() -> None:
    model, x = Experts().eval(), torch.randn(4, 8)
    assert "MatMul" in {node.op_type for node in export(model, x).graph}  # and holds both
    prepared = prepare_qat(model, inputs=x)
    prepared(x).square().mean().backward()
    assert onnxq.cross_check(export(prepared.eval(), x), {"x": x.numpy()}).differing == 0
    assert model.config.way == "grouped_mm"
