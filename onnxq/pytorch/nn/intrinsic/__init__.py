"""Fused float modules: layers that run one after another and are quantized as one.

Each is a Sequential of its parts, so that a float model computes what it did before `fuse_modules`
made them. `prepare_qat` and `convert` put one module in its place: `qat` has these for training,
`quantized` as they are deployed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import ModelError
from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.nn.refused import INTRINSIC

__all__ = [
    "BATCH_NORMS",
    "FUSED",
    "BNReLU2d",
    "BNReLU3d",
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "ConvTransposeBn1d",
    "ConvTransposeBn2d",
    "ConvTransposeBn3d",
    "ConvTransposeBnReLU1d",
    "ConvTransposeBnReLU2d",
    "ConvTransposeBnReLU3d",
    "ConvTransposeReLU1d",
    "ConvTransposeReLU2d",
    "ConvTransposeReLU3d",
    "FusedModule",
    "LinearBn1d",
    "LinearReLU",
    "without_batch_norm",
]

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, INTRINSIC)

_NAMES = ("conv", "linear", "bn", "batch_norm", "relu")
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class FusedModule(nn.Sequential):
    """A Sequential whose parts are of known types.

    Args:
        parts: in the order of PARTS.
        named: the same by torch's names, in that order: conv, linear, bn, batch_norm, relu.

    Raises:
        ModelError: other types, names or another number of them.
    """

    PARTS: ClassVar[tuple[type[nn.Module], ...]] = ()

    def __init__(self, *parts: nn.Module, **named: nn.Module) -> None:
        unknown = [name for name in named if name not in _NAMES]
        if unknown:
            raise ModelError(
                f"{type(self).__name__}: got the argument '{unknown[0]}'; wanted parts by "
                f"position, or by the names {', '.join(_NAMES)}."
            )
        parts = (*parts, *named.values())
        got = tuple(type_before_parametrizations(part) for part in parts)
        if got != self.PARTS:
            raise ModelError(
                f"{type(self).__name__}: got {_names(got)}; wanted {_names(self.PARTS)}, in this "
                "order. (A subclass may compute something else, so it does not stand for its base.)"
            )
        super().__init__(*parts)

    @classmethod
    def folds_batch_norm(cls) -> bool:
        """Whether a batch norm follows a layer that can take it into its weights."""
        return any(part in BATCH_NORMS for part in cls.PARTS[1:])


def _names(types: tuple[type, ...]) -> str:
    return f"({', '.join(t.__name__ for t in types)})"


class ConvReLU1d(FusedModule):
    """Conv1d, then ReLU."""

    PARTS = (nn.Conv1d, nn.ReLU)


class ConvReLU2d(FusedModule):
    """Conv2d, then ReLU."""

    PARTS = (nn.Conv2d, nn.ReLU)


class ConvReLU3d(FusedModule):
    """Conv3d, then ReLU."""

    PARTS = (nn.Conv3d, nn.ReLU)


class LinearReLU(FusedModule):
    """Linear, then ReLU."""

    PARTS = (nn.Linear, nn.ReLU)


class ConvBn1d(FusedModule):
    """Conv1d, then BatchNorm1d."""

    PARTS = (nn.Conv1d, nn.BatchNorm1d)


class ConvBn2d(FusedModule):
    """Conv2d, then BatchNorm2d."""

    PARTS = (nn.Conv2d, nn.BatchNorm2d)


class ConvBn3d(FusedModule):
    """Conv3d, then BatchNorm3d."""

    PARTS = (nn.Conv3d, nn.BatchNorm3d)


class ConvBnReLU1d(FusedModule):
    """Conv1d, then BatchNorm1d, then ReLU."""

    PARTS = (nn.Conv1d, nn.BatchNorm1d, nn.ReLU)


class ConvBnReLU2d(FusedModule):
    """Conv2d, then BatchNorm2d, then ReLU."""

    PARTS = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)


class ConvBnReLU3d(FusedModule):
    """Conv3d, then BatchNorm3d, then ReLU."""

    PARTS = (nn.Conv3d, nn.BatchNorm3d, nn.ReLU)


class ConvTransposeReLU1d(FusedModule):
    """ConvTranspose1d, then ReLU."""

    PARTS = (nn.ConvTranspose1d, nn.ReLU)


class ConvTransposeReLU2d(FusedModule):
    """ConvTranspose2d, then ReLU."""

    PARTS = (nn.ConvTranspose2d, nn.ReLU)


class ConvTransposeReLU3d(FusedModule):
    """ConvTranspose3d, then ReLU."""

    PARTS = (nn.ConvTranspose3d, nn.ReLU)


class ConvTransposeBn1d(FusedModule):
    """ConvTranspose1d, then BatchNorm1d."""

    PARTS = (nn.ConvTranspose1d, nn.BatchNorm1d)


class ConvTransposeBn2d(FusedModule):
    """ConvTranspose2d, then BatchNorm2d."""

    PARTS = (nn.ConvTranspose2d, nn.BatchNorm2d)


class ConvTransposeBn3d(FusedModule):
    """ConvTranspose3d, then BatchNorm3d."""

    PARTS = (nn.ConvTranspose3d, nn.BatchNorm3d)


class ConvTransposeBnReLU1d(FusedModule):
    """ConvTranspose1d, then BatchNorm1d, then ReLU."""

    PARTS = (nn.ConvTranspose1d, nn.BatchNorm1d, nn.ReLU)


class ConvTransposeBnReLU2d(FusedModule):
    """ConvTranspose2d, then BatchNorm2d, then ReLU."""

    PARTS = (nn.ConvTranspose2d, nn.BatchNorm2d, nn.ReLU)


class ConvTransposeBnReLU3d(FusedModule):
    """ConvTranspose3d, then BatchNorm3d, then ReLU."""

    PARTS = (nn.ConvTranspose3d, nn.BatchNorm3d, nn.ReLU)


class LinearBn1d(FusedModule):
    """Linear, then BatchNorm1d."""

    PARTS = (nn.Linear, nn.BatchNorm1d)


class BNReLU2d(FusedModule):
    """BatchNorm2d, then ReLU."""

    PARTS = (nn.BatchNorm2d, nn.ReLU)


class BNReLU3d(FusedModule):
    """BatchNorm3d, then ReLU."""

    PARTS = (nn.BatchNorm3d, nn.ReLU)


FUSED = tuple(FusedModule.__subclasses__())
"""Every fused layer, in the order above."""


def without_batch_norm(kind: type[nn.Module]) -> type[nn.Module]:
    """Float type that is left where batch norm is folded into the layer in front of it.

    ConvBnReLU2d -> ConvReLU2d; ConvBn2d -> nn.Conv2d; others -> themselves.
    """
    if not issubclass(kind, FusedModule) or not kind.folds_batch_norm():
        return kind
    left = tuple(part for part in kind.PARTS if part not in BATCH_NORMS)
    return left[0] if len(left) == 1 else next(other for other in FUSED if left == other.PARTS)
