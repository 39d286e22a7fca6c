"""31 models of transformers and timm, small and with random weights, that training is tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.parts.qat_models import text_and_speech, vision

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    Made = tuple[nn.Module, dict[str, torch.Tensor]]

__all__ = ["MODELS", "build"]

MODELS: dict[str, Callable[[], Made]] = {**text_and_speech.MODELS, **vision.MODELS}
"""Name -> what makes it."""

_SEED = 0


def build(name: str) -> Made:
    """The model in eval mode and example inputs by name; the same in every process."""
    torch.manual_seed(_SEED)
    model, inputs = MODELS[name]()
    return model.eval(), inputs
