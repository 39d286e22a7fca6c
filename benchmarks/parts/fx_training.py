"""The same training with PyTorch's own FX quantization, torch.ao.quantization.quantize_fx."""

from __future__ import annotations

import copy
import itertools
import time
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
    from collections.abc import Iterator

    from torch import Tensor, nn
    from torch.fx import GraphModule

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
    module: nn.Module, largest: int, batches: Iterator[Tensor], loss: Loss, recipe: Recipe
) -> tuple[GraphModule, float]:
    """The fake-quantized module after the steps, in eval mode, and CPU seconds per step."""
    first = next(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        prepared = prepare_qat_fx(copy.deepcopy(module).train(), qconfig(largest), (first,))
    optimizer = torch.optim.Adam(prepared.parameters(), recipe.learning_rate)
    started = time.thread_time()
    for step, batch in enumerate(itertools.chain([first], batches)):
        if step == round(recipe.freeze_activations * recipe.steps):
            _disable_observers_of_activations(prepared)
        if step == round(recipe.freeze * recipe.steps):
            prepared.apply(disable_observer).apply(freeze_bn_stats)
        optimizer.param_groups[0]["lr"] = recipe.rate(step)
        optimizer.zero_grad()
        loss(prepared, batch).backward()
        optimizer.step()
    seconds = (time.thread_time() - started) / recipe.steps
    prepared.apply(disable_observer).eval()
    return prepared, seconds


def converted(prepared: GraphModule) -> nn.Module:
    """The module as PyTorch deploys it, on the kernels of ENGINE."""
    torch.backends.quantized.engine = ENGINE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        made: nn.Module = convert_fx(copy.deepcopy(prepared))
    return made


def _disable_observers_of_activations(prepared: nn.Module) -> None:
    for name, part in prepared.named_modules():
        if isinstance(part, FakeQuantize) and not name.endswith("weight_fake_quant"):
            part.disable_observer()
