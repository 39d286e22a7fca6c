"""Models of other libraries train, convert and deploy; the table of them is printed by a script."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING, Any

import pytest

if not all(map(importlib.util.find_spec, ("transformers", "timm"))):  # timm imports torchvision
    pytest.skip("scripts/nightly installs transformers and timm", allow_module_level=True)

import torch

from benchmarks.parts.qat_models import MODELS, build
from benchmarks.qat_models import RATE, run
from onnxq.pytorch import prepare_qat
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats

if TYPE_CHECKING:
    from torch import nn


@pytest.mark.nightly(nights=5)
@pytest.mark.filterwarnings("ignore")  # of those libraries
@pytest.mark.parametrize("name", MODELS)
def test_it_trains_and_onnx_runtime_computes_the_integers_that_the_reference_does(
    name: str,
) -> None:
    one = run(name)
    assert one.annotations.weights
    assert not one.findings.differing
    assert not one.findings.first_difference


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_the_loss_of_ghostnet_stays_near_that_of_float() -> None:
    """Losses once were NaN from the third step on, with statistics of batch norm as they are."""
    model, inputs = build("ghostnetv2")
    losses = losses_of(prepare_qat(model, inputs=inputs).apply(freeze_bn_stats), inputs)
    wanted = losses_of(model, inputs)
    assert all(map(math.isfinite, losses))
    assert max(losses) < 2 * max(wanted)


def losses_of(model: nn.Module, inputs: dict[str, torch.Tensor], steps: int = 5) -> list[float]:
    """Losses of some steps of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for _ in range(steps):
        loss: Any = model(**inputs).square().mean()
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses
