"""The float weights of a prepared module, and the FakeQuantize that gives their integers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import QConfigError, UnsupportedError
from onnxq.pytorch.modules.transposed import along_channels
from onnxq.pytorch.nn.quantized.weighted import FloatWeights
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize, fake_quantize_module
from onnxq.qconfig import QConfig


@runtime_checkable
class Trained(Protocol):
    """A module of nn.qat or nn.intrinsic.qat."""

    weight_fake_quant: FakeQuantize

    @classmethod
    def deployed_type(cls) -> type[nn.Module]:
        """Float module that computes what is deployed: batch norm folded into the layer."""

    def folded(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(weight, bias) in float32, batch norm folded with its running statistics."""


def float_weights(mod: nn.Module, wanted_by: str) -> FloatWeights:
    """Weights of a QAT module, or of a float module that was observed.

    Args:
        mod: the prepared module; its qconfig says how weights are quantized where it has no
            FakeQuantize for them.
        wanted_by: class whose from_float asks, for messages.
    """
    if isinstance(mod, Trained):
        folded = mod.folded()
        fake = mod.weight_fake_quant
        if not fake.has_observed:
            fake = having_seen(fake, folded[0])
        return FloatWeights(*folded, fake)
    core = core_of(mod)
    qconfig = getattr(mod, "qconfig", None) or getattr(core, "qconfig", None)
    if not isinstance(qconfig, QConfig):
        raise QConfigError(
            f"{wanted_by}.from_float: the {type(mod).__name__} has no qconfig. Call prepare or "
            "prepare_qat with one for it, or set its qconfig before."
        )
    weight, bias = core.weight, getattr(core, "bias", None)  # embeddings have none
    assert isinstance(weight, torch.Tensor)
    assert bias is None or isinstance(bias, torch.Tensor)
    part = along_channels(qconfig.weight, core)
    return FloatWeights(weight, bias, having_seen(fake_quantize_module(part), weight))


def having_seen(fake: FakeQuantize, weight: torch.Tensor) -> FakeQuantize:
    """The module after it has seen the weight."""
    fake.to(weight.device)
    watching = fake.observer_enabled
    fake.enable_observer()
    fake(weight.detach().to(torch.float32))
    return fake.enable_observer(watching)


def check_type(mod: object, float_type: type[nn.Module], wanted_by: str) -> None:
    """Passes a module of exactly that type: a subclass may compute something else."""
    got = _type_of(mod)
    if got is not float_type:
        raise UnsupportedError(
            f"{wanted_by}.from_float: got a {_name(got)}; wanted a {_name(float_type)}, prepared."
        )


def check_layer(mod: object, float_type: type[nn.Module], wanted_by: str) -> None:
    """Passes a module of exactly that type, or a trained one that is deployed as it."""
    got = _type_of(mod)
    kind = got
    if isinstance(mod, Trained) and "float_type" in vars(got):
        kind = mod.deployed_type()
    if kind is not float_type:
        raise UnsupportedError(
            f"{wanted_by}.from_float: got a {_name(got)}; wanted a {_name(float_type)}, prepared, "
            "or a module that was trained in its place."
        )


def _type_of(mod: object) -> type:
    return type_before_parametrizations(mod) if isinstance(mod, nn.Module) else type(mod)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def core_of(mod: nn.Module) -> nn.Module:
    """The part that holds weight and bias: the first of a fused float module, else itself."""
    return mod[0] if isinstance(mod, nn.Sequential) else mod
