"""Clip: bounds that can be learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Clip(nn.Module):
    """min(max(x, clip_value_min), clip_value_max).

    Gradient of x: passes where clip_value_min <= x <= clip_value_max. Of clip_value_min: the sum of
    those of the outputs that it replaced; of clip_value_max likewise.

    Args:
        clip_value_min: first lower bound.
        clip_value_max: first upper bound.
        learn_min: whether the lower bound is a parameter.
        learn_max: whether the upper bound is.
    """

    clip_value_min: Tensor
    clip_value_max: Tensor

    def __init__(
        self,
        clip_value_min: float,
        clip_value_max: float,
        learn_min: bool = False,
        learn_max: bool = False,
    ) -> None:
        super().__init__()
        bounds = {"clip_value_min": (clip_value_min, learn_min)}
        bounds["clip_value_max"] = (clip_value_max, learn_max)
        for name, (value, learned) in bounds.items():
            bound = torch.tensor(float(value))
            if learned:
                self.register_parameter(name, nn.Parameter(bound))
            else:
                self.register_buffer(name, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """The clipped inputs, of their shape and type."""
        if torch.compiler.is_exporting():  # the same values, as one node
            return torch.clamp(inputs, self.clip_value_min, self.clip_value_max)
        low, high = self.clip_value_min.to(inputs.dtype), self.clip_value_max.to(inputs.dtype)
        return torch.where(inputs < low, low, torch.where(inputs > high, high, inputs))
