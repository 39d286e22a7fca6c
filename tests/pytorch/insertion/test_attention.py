"""nn.MultiheadAttention and torch's transformers without stubs: trained as they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import onnxq
from onnxq.graph.canonical import canonicalize_module
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch import convert, disable_observer, export, prepare_qat
from onnxq.pytorch.deployed import Feeding, compare
from onnxq.pytorch.insertion.annotate import parameters_apart
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.program import Open, program_of
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.qconfig import Choice, QConfigMapping, get_default_qat_qconfig
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    from collections.abc import Callable

MAPPING = QConfigMapping(get_default_qat_qconfig(), choice=Choice.ALL_INTEGERS)
CAUSAL = torch.full((6, 6), -torch.inf).triu(1)
PADDED = torch.arange(6).expand(8, 6) >= torch.arange(3, 11)[:, None]
Made = tuple[nn.Module, dict[str, Tensor]]


class Vit(nn.Module):
    """Patches of an image, a token for the class, torch's own encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.place = nn.Parameter(torch.randn(1, 4, 16) / 4)
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (N, 5)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.place
        scores: Tensor = self.head(self.encoder(tokens)[:, 0])
        return scores


class Encoder(nn.Module):
    """With padding, a causal mask that torch looks into, and nested tensors."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, nn.LayerNorm(16))
        self.head = nn.Linear(16, 5)
        self.register_buffer("mask", CAUSAL < 0)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """(N, 6, 5)."""
        y: Tensor = self.head(self.encoder(x, self.mask, padding))
        return y


class Cross(nn.Module):
    """Attends from one sequence to another; its attention weights are a result too."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(16, 2, 0.1, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 6, 5), (N, 6, 4)."""
        y, attn_weights = self.attend(x, memory, memory)
        return self.head(y), attn_weights


def vit() -> Made:
    return Vit(), {"x": torch.randn(8, 3, 8, 8)}


def encoder() -> Made:
    return Encoder(), {"x": torch.randn(8, 6, 16), "padding": PADDED}


def cross() -> Made:
    return Cross(), {"x": torch.randn(8, 6, 16), "memory": torch.randn(8, 4, 16)}


@pytest.mark.nightly
@pytest.mark.parametrize("make", [vit, encoder, cross])
def test_what_is_trained_is_deployed_and_annotated_as_post_training_inserts_it(
    make: Callable[[], Made],
) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    trained: Any = prepare_qat(model, inputs=inputs)
    found = trained.meta[ANNOTATIONS]
    assert not found.unannotated
    program = program_of(model, inputs, left_open=Open.LENGTHS)
    with parameters_apart(program.exported):  # as annotation names nodes
        form = canonicalize_module(onnx_form(program), types_by_run)
    decided = onnxq.prepare(form, MAPPING)
    tensors = [t for group in found.groups for t in group.nodes.values()]
    tensors += [t for group in found.groups for _, _, t, _ in group.numbers]
    # of others, the module has copies alone
    assert set(tensors) <= {t for group in decided.groups for t in group.members}
    weights = [
        name
        for name, decision in decided.decisions.items()
        if isinstance(decision, Quantize) and decision.rule.weight is not None
    ]
    assert [weight.exported for weight in found.weights] == weights
    train(trained, inputs)
    trained.apply(disable_observer).eval()
    exported = export(convert(trained), inputs)
    seen = compare(trained, exported, [inputs], Feeding.LAYER_BY_LAYER)
    assert len(seen.tensors) > 10
    together = sum(one.differing for one in seen.tensors.values())
    assert together <= 0.002 * sum(one.elements for one in seen.tensors.values())
    assert all(one.largest <= 1 for one in seen.tensors.values())


def train(model: nn.Module, inputs: dict[str, Tensor]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        y = model(**inputs)
        (y[0] if isinstance(y, tuple) else y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    without = [name for name, p in model.named_parameters() if not bool(torch.isfinite(p).all())]
    assert not without


def test_one_sequence_is_annotated() -> None:
    torch.manual_seed(0)
    trained: Any = prepare_qat(Options().eval(), inputs=torch.randn(6, 16))
    found = trained.meta[ANNOTATIONS]
    assert not found.unannotated
    assert len(found.weights) == 4  # query, key, value, output


class Causal(nn.Module):
    """scaled_dot_product_attention with a mask of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.packed, self.kind = nn.Linear(16, 48), kind
        self.register_buffer("mask", CAUSAL)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 2, 6, 8)."""
        q, k, v = self.packed(x).reshape(x.shape[0], 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        if self.kind == "causal":
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mask: Any = self.mask
        mask = mask == 0 if self.kind == "bool" else mask
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["causal", "bool", "float"])
def test_a_mask_of_the_function_is_kept(kind: str) -> None:
    torch.manual_seed(0)
    model, x = Causal(kind).eval(), torch.randn(8, 6, 16)
    trained = prepare_qat(model, inputs=x).eval()
    with torch.no_grad():
        assert float((trained(x) - model(x)).abs().mean()) < 0.02
    export(convert(trained), x)  # holds it against the module


class Options(nn.Module):
    """Attention with options of nn.MultiheadAttention."""

    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Attends to itself; shaped as x."""
        y: Tensor = self.attend(x, x, x)[0]
        return y


@pytest.mark.nightly
def test_options_that_one_layer_has_of_its_own_train() -> None:
    trained: Any = prepare_qat(Options(add_bias_kv=True), inputs=torch.randn(3, 6, 16))
    assert trained.meta[ANNOTATIONS].weights
