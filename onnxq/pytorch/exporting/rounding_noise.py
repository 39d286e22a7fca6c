"""Distance that roundings alone move a quantized module's outputs, measured on its inputs.

    rounded(x + u scale),  u uniform in [-1/2, 1/2)

in place of rounded(x), for every quantized tensor. With fractions of x / scale spread evenly the
integers of the two differ by 1/4 of a squared LSB, those of two independent roundings by 1/6: what
is measured is not less than what another order of sums can do, with the module's scales and
amplification.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from onnxq.pytorch.arguments.forward import compute, flatten
from onnxq.pytorch.nn.quantized.requantize import Requantize

if TYPE_CHECKING:
    from torch import nn

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

DRAWS = 4  # the largest of them counts: few outputs make a root mean square of one draw uncertain


def rounding_noise(module: nn.Module, inputs: BoundInputs) -> list[float]:
    """Root mean square of what other roundings change in each output, the largest of DRAWS.

    Args:
        module: quantized, in eval mode.
        inputs: one batch.
    Returns:
        In the outputs' own unit; 0 for an output that is not float, or empty.
    """
    reference = flatten(compute(module, inputs))
    generator = torch.Generator().manual_seed(0)
    largest = [0.0] * len(reference)
    for _ in range(DRAWS):
        with contextlib.ExitStack() as stack:
            for part in module.modules():
                if isinstance(part, Requantize):
                    handle = part.register_forward_pre_hook(_Dither(generator))
                    stack.callback(handle.remove)
            moved = flatten(compute(module, inputs))
        changes = [_change(a, b) for a, b in zip(moved, reference, strict=True)]
        largest = [max(pair) for pair in zip(largest, changes, strict=True)]
    return largest


class _Dither:
    """Adds noise of one LSB's width to what is rounded."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __call__(self, part: Requantize, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (x,) = args
        noise = torch.rand(x.shape, generator=self.generator) - 0.5
        return (x + noise.to(x.device) * part.scale,)


def _change(actual: torch.Tensor, expected: torch.Tensor) -> float:
    if not expected.is_floating_point() or not expected.numel():
        return 0.0
    return float((actual.double() - expected.double()).square().mean().sqrt())
