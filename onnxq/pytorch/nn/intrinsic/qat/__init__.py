"""Fused layers for quantization-aware training."""

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from onnxq.pytorch.modules.refused_names import INTRINSIC_QAT, refusing
from onnxq.pytorch.modules.transposed import CONVS, TRANSPOSED
from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic import FAMILIES, FusedModule
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm as WithBatchNorm
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import freeze_bn_stats as freeze_bn_stats
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import update_bn_stats as update_bn_stats
from onnxq.pytorch.nn.qat.conv import Convolution, TransposedConvolution
from onnxq.pytorch.nn.qat.linear import Linear
from onnxq.pytorch.nn.triplets import Triplet, names_of, signature_of, triplet
from onnxq.qconfig import QConfig

__all__ = sorted(
    [
        "LinearBn1d",
        "LinearReLU",
        "WithBatchNorm",
        "freeze_bn_stats",
        "update_bn_stats",
        *names_of(*FAMILIES),
    ]
)

# --- Convolutions with the batch norm or ReLU behind them, in training; transposed ones too.


class _WithBatchNorm(WithBatchNorm):
    """Convolutions with batch norm; the arguments are the convolution's, then batch norm's.

    freeze_bn: starts with frozen statistics.
    """

    more: ClassVar[dict[str, Any]] = {
        "eps": 1e-5,
        "momentum": 0.1,
        "freeze_bn": False,
        **Convolution.more,
    }
    out_channels: int

    def finish(self, qconfig: object, **norm: Any) -> None:
        """The end of the constructor, with the arguments beside."""
        self.set_qconfig(qconfig)
        self.make_batch_norm(self.out_channels, *norm.values())


class QatConvBn(_WithBatchNorm, Convolution):
    """Convolutions with batch norm."""


class QatConvTransposeBn(_WithBatchNorm, TransposedConvolution):
    """Transposed convolutions with batch norm."""


def _trained(name: str, *bases: type | tuple[type, ...]) -> Triplet:
    """Makes {name}1d, {name}2d and {name}3d, each for the float module of that name."""

    def kind(n: int) -> type[FusedModule]:
        found: type[FusedModule] = getattr(intrinsic, f"{name}{n}d")
        return found

    doc = str(kind(2).__doc__).replace("2d", "{n}d")
    base: Any = bases[0]
    layers: Any = bases[1]

    def signature(n: int) -> inspect.Signature:
        made = signature_of(layers[n - 1], "device", **base.more)
        if not issubclass(base, WithBatchNorm):
            return made
        own = made.parameters
        parameters = [own[k].replace(default=None) if k == "bias" else own[k] for k in own]
        return made.replace(parameters=parameters)

    return triplet(__name__, name, doc, *bases, float_type=kind, __signature__=signature)


ConvReLU1d, ConvReLU2d, ConvReLU3d = _trained("ConvReLU", Convolution, CONVS)
ConvBn1d, ConvBn2d, ConvBn3d = _trained("ConvBn", QatConvBn, CONVS)
ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d = _trained("ConvBnReLU", QatConvBn, CONVS)
ConvTransposeReLU1d, ConvTransposeReLU2d, ConvTransposeReLU3d = _trained(
    "ConvTransposeReLU", TransposedConvolution, TRANSPOSED
)
ConvTransposeBn1d, ConvTransposeBn2d, ConvTransposeBn3d = _trained(
    "ConvTransposeBn", QatConvTransposeBn, TRANSPOSED
)
ConvTransposeBnReLU1d, ConvTransposeBnReLU2d, ConvTransposeBnReLU3d = _trained(
    "ConvTransposeBnReLU", QatConvTransposeBn, TRANSPOSED
)

# --- Linear with the ReLU or batch norm behind it, in training.


class LinearReLU(Linear):
    """Linear and ReLU."""

    float_type = intrinsic.LinearReLU


class LinearBn1d(WithBatchNorm, Linear):
    """Linear and BatchNorm1d; freeze_bn: starts with frozen statistics.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    float_type = intrinsic.LinearBn1d

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        qconfig: QConfig | None = None,
    ) -> None:
        Linear.__init__(self, in_features, out_features, bias, qconfig)
        self.make_batch_norm(out_features, eps, momentum, freeze_bn)


if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, INTRINSIC_QAT)
