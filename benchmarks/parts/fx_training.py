"""The same training with PyTorch's own FX quantization, torch.ao.quantization.quantize_fx."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING

import torch
from torch.ao.nn.intrinsic.qat import freeze_bn_stats
from torch.ao.quantization import (
    FakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    disable_observer,
)
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from onnxq.pytorch.train.recipe import Loss, Recipe

ENGINE = "x86"
"""Kernels that run the converted module."""


def qconfig(largest: int) -> QConfigMapping:
    """uint8 activations, and weights in [-largest, largest] with a scale per channel."""
    activation = FakeQuantize.with_args(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
    )
    weight = FakeQuantize.with_args(
        observer=MovingAveragePerChannelMinMaxObserver,
        quant_min=-largest,
        quant_max=largest,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )
    return QConfigMapping().set_global(QConfig(activation, weight))


def trained(
    module: nn.Module, largest: int, batches: Iterable[Tensor], loss: Loss, recipe: Recipe
) -> tuple[nn.Module, nn.Module]:
    """The fake-quantized module after the steps, in eval mode, and the converted one."""
    torch.backends.quantized.engine = ENGINE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        example = (next(iter(batches := list(batches))),)
        prepared = prepare_qat_fx(copy.deepcopy(module).train(), qconfig(largest), example)
        optimizer = torch.optim.Adam(prepared.parameters(), recipe.learning_rate)
        for step, batch in enumerate(batches):
            if step == round(recipe.freeze_activations * recipe.steps):
                _disable_observers_of_activations(prepared)
            if step == round(recipe.freeze * recipe.steps):
                prepared.apply(disable_observer).apply(freeze_bn_stats)
            optimizer.param_groups[0]["lr"] = recipe.rate(step)
            optimizer.zero_grad()
            loss(prepared, batch).backward()
            optimizer.step()
        prepared.apply(disable_observer).eval()
        return prepared, convert_fx(copy.deepcopy(prepared))


def _disable_observers_of_activations(prepared: nn.Module) -> None:
    for name, part in prepared.named_modules():
        if isinstance(part, FakeQuantize) and not name.endswith("weight_fake_quant"):
            part.disable_observer()
