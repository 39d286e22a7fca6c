"""Layers with the ReLU behind them, on int8 weights: one kernel each where they are deployed."""

from typing import TYPE_CHECKING

import torch

from onnxq.pytorch.modules.refused_names import INTRINSIC_QUANTIZED, refusing
from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized import conv
from onnxq.pytorch.nn.quantized.linear import Linear
from onnxq.pytorch.nn.quantized.normalization import BatchNorm2d, BatchNorm3d
from onnxq.pytorch.nn.triplets import names_of, triplet

__all__ = sorted(["BNReLU2d", "BNReLU3d", "LinearReLU", *names_of("ConvReLU", "ConvTransposeReLU")])

# --- Convolution and ReLU, transposed too.

ConvReLU1d, ConvReLU2d, ConvReLU3d = triplet(
    __name__,
    "ConvReLU",
    "max(conv{n}d(x), 0), fake-quantized.",
    (conv.Conv1d, conv.Conv2d, conv.Conv3d),
    float_type=lambda n: getattr(intrinsic, f"ConvReLU{n}d"),
)
ConvTransposeReLU1d, ConvTransposeReLU2d, ConvTransposeReLU3d = triplet(
    __name__,
    "ConvTransposeReLU",
    "max(conv_transpose{n}d(x), 0), fake-quantized.",
    (conv.ConvTranspose1d, conv.ConvTranspose2d, conv.ConvTranspose3d),
    float_type=lambda n: getattr(intrinsic, f"ConvTransposeReLU{n}d"),
)

# --- Linear layer and ReLU.


class LinearReLU(Linear):
    """max(linear(x), 0), fake-quantized."""

    float_type = intrinsic.LinearReLU

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        dtype: torch.dtype = torch.qint8,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype, device=device)


# --- Batch norm and ReLU.


class BNReLU2d(BatchNorm2d):
    """max(batch norm(x), 0), fake-quantized."""

    float_type = intrinsic.BNReLU2d


class BNReLU3d(BatchNorm3d):
    """max(batch norm(x), 0), fake-quantized."""

    float_type = intrinsic.BNReLU3d


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, INTRINSIC_QUANTIZED)
