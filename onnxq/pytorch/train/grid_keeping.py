"""Functions whose result has the grid of their input, and lies between its steps.

    x (scale s, zero point z) --mean, avg_pool2d, clamp--> floats --round_input--> (s, z)

torch's quantized kernels of these functions keep scale and zero point, too. A function has no
module that could round its result, so that the layer that reads it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxq.pytorch.modules.hooks import has_pre_hook
from onnxq.pytorch.nn.quantized.requantize import Requantize

if TYPE_CHECKING:
    from torch import nn

    from onnxq.pytorch.numerics.fake_quantize import FakeQuantize

_GRID_KEEPING = """
    mean avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d interpolate upsample upsample_bilinear
    hardtanh hardtanh_ relu6 clamp clamp_ clip clip_ leaky_relu leaky_relu_
"""
GRID_KEEPING = frozenset(_GRID_KEEPING.split())
"""Functions whose quantized kernels in torch keep scale and zero point of their input."""


@dataclass(frozen=True)
class Between:
    """A tensor between the steps of a grid.

    Attributes:
        fake: whose grid.
    """

    fake: FakeQuantize


def round_input(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The hook of a prepared layer: its input goes to the grid of `input_fake_quant`."""
    fake: FakeQuantize = layer.input_fake_quant
    return (fake.rounded(args[0]), *args[1:]) if fake.fake_quant_enabled else args


def requantize_input(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The hook of a converted layer: as round_input, with QuantizeLinear and DequantizeLinear."""
    return (layer.input_grid(args[0]), *args[1:])


def keep_rounding(prepared: nn.Module, converted: nn.Module) -> None:
    """Lets the converted layer round its input, if the prepared one does."""
    if has_pre_hook(prepared, round_input):
        converted.input_grid = Requantize.from_float(prepared.input_fake_quant)  # type: ignore[arg-type]  # a FakeQuantize
        converted.register_forward_pre_hook(requantize_input)
