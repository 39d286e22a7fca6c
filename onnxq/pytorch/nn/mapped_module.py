"""A module that replaces a float module, which may be fused, by the quantized module mapping."""

from typing import ClassVar

import torch
from torch import nn

from onnxq.pytorch.nn.intrinsic import FusedModule


class MappedModule(nn.Module):
    """A module that computes what `float_type` computes, a fused ReLU too."""

    float_type: ClassVar[type[nn.Module]]
    """The float module that from_float takes."""
    has_relu: ClassVar[bool] = False
    """Whether a ReLU is fused into it; follows from `float_type`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        kind: type[nn.Module] = getattr(cls, "float_type", nn.Module)
        cls.has_relu = issubclass(kind, FusedModule) and nn.ReLU in kind.PARTS

    def activated(self, y: torch.Tensor) -> torch.Tensor:
        """The ReLU of y, where one is fused into the module."""
        return torch.relu(y) if self.has_relu else y
