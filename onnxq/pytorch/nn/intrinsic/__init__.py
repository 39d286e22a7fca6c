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
from onnxq.pytorch.modules.refused_names import INTRINSIC, refusing
from onnxq.pytorch.modules.transposed import CONVS, TRANSPOSED
from onnxq.pytorch.nn.triplets import names_of, triplet

FAMILIES = (
    *("ConvBn", "ConvBnReLU", "ConvReLU"),
    *("ConvTransposeBn", "ConvTransposeBnReLU", "ConvTransposeReLU"),
)
"""Names of convolutions with what is fused, without the number of axes."""

__all__ = sorted(
    [
        "BATCH_NORMS",
        "FUSED",
        "BNReLU2d",
        "BNReLU3d",
        "FusedModule",
        "LinearBn1d",
        "LinearReLU",
        "without_batch_norm",
        *names_of(*FAMILIES),
    ]
)

if TYPE_CHECKING:
    from onnxq.pytorch.nn.triplets import Triplet
else:
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


def _fused(name: str, *parts: type[nn.Module] | tuple[type[nn.Module], ...]) -> Triplet:
    """Makes {name}1d, {name}2d and {name}3d of types, or of one type for each number of axes."""

    def parts_of(n: int) -> tuple[type[nn.Module], ...]:
        return tuple(part[n - 1] if isinstance(part, tuple) else part for part in parts)

    doc = ", then ".join(part.__name__.replace("2d", "{n}d") for part in parts_of(2)) + "."
    return triplet(__name__, name, doc, FusedModule, PARTS=parts_of)


ConvReLU1d, ConvReLU2d, ConvReLU3d = _fused("ConvReLU", CONVS, nn.ReLU)


class LinearReLU(FusedModule):
    """Linear, then ReLU."""

    PARTS = (nn.Linear, nn.ReLU)


ConvBn1d, ConvBn2d, ConvBn3d = _fused("ConvBn", CONVS, BATCH_NORMS)
ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d = _fused("ConvBnReLU", CONVS, BATCH_NORMS, nn.ReLU)
ConvTransposeReLU1d, ConvTransposeReLU2d, ConvTransposeReLU3d = _fused(
    "ConvTransposeReLU", TRANSPOSED, nn.ReLU
)
ConvTransposeBn1d, ConvTransposeBn2d, ConvTransposeBn3d = _fused(
    "ConvTransposeBn", TRANSPOSED, BATCH_NORMS
)
ConvTransposeBnReLU1d, ConvTransposeBnReLU2d, ConvTransposeBnReLU3d = _fused(
    "ConvTransposeBnReLU", TRANSPOSED, BATCH_NORMS, nn.ReLU
)


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
    """Float type that is left where batch norm is folded into the layer in front of it."""
    if not issubclass(kind, FusedModule) or not kind.folds_batch_norm():
        return kind
    left = tuple(part for part in kind.PARTS if part not in BATCH_NORMS)
    return left[0] if len(left) == 1 else next(other for other in FUSED if left == other.PARTS)
