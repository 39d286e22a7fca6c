"""Layers that stand in several places, as those that share weights do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxq.pytorch import DeQuantStub, QuantStub, convert, export, prepare, prepare_qat
from onnxq.pytorch.modules.places import exchanged, places
from onnxq.pytorch.nn import qat, quantizable
from onnxq.qconfig import get_default_qat_qconfig, get_default_qconfig


class Twice(nn.Module):
    """layer(layer(x)), the layer in two places of one list."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.layers = nn.ModuleList([layer, layer])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.quant(x)
        for layer in self.layers:
            x = layer(x)
        y: torch.Tensor = self.dequant(x)
        return y


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.ModuleList([layer, layer])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_every_place_is_seen_and_exchanged() -> None:
    old, new = nn.ReLU(), nn.Tanh()
    inner = nn.Sequential(old)
    root = nn.Sequential(old, inner, old)
    root.register_module("nothing", None)
    assert [name for name, _ in places(root)] == ["0", "1", "2"]
    assert exchanged(root, {old: new}) is root
    assert [root[0], inner[0], root[2]] == [new, new, new]


def test_the_root_itself_is_exchanged() -> None:
    old, new = nn.ReLU(), nn.Tanh()
    assert exchanged(old, {old: new}) is new


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.Linear(16, 16), qat.Linear),
        (nn.MultiheadAttention(16, 2), quantizable.MultiheadAttention),
    ],
)
def test_a_shared_layer_trains_in_all_its_places(layer: nn.Module, kind: type[nn.Module]) -> None:
    model = Twice(layer)
    model.qconfig = get_default_qat_qconfig()  # type: ignore[assignment]  # modules take any
    (_, first), (_, second) = places(prepare_qat(model).get_submodule("layers"))
    assert type(first) is kind
    assert second is first


@pytest.mark.nightly
def test_a_shared_transformer_layer_is_annotated_in_all_its_places() -> None:
    x = torch.randn(2, 5, 16)
    prepared = prepare_qat(Encoder(), inputs=(x,))
    prepared(x)
    model = export(convert(prepared.eval()), (x,))
    assert sum(node.op_type == "Softmax" for node in model.graph) == 2


class Own(nn.Module):
    """A module that the user observes in a way of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y


class Observed(Own):
    @classmethod
    def from_float(cls, module: Own) -> Observed:
        made = cls()
        made.linear = module.linear
        return made


def test_a_users_observed_module_takes_all_places_of_its_float_one() -> None:
    model = Twice(Own()).eval()
    model.qconfig = get_default_qconfig()  # type: ignore[assignment]  # modules take any
    custom = {"float_to_observed_custom_module_class": {Own: Observed}}
    prepared = prepare(model, prepare_custom_config_dict=custom)
    (_, first), (_, second) = places(prepared.get_submodule("layers"))
    assert type(first) is Observed
    assert second is first
