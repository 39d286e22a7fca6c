"""Linear with the ReLU or batch norm behind it, in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm
from onnxq.pytorch.nn.qat.linear import Linear

if TYPE_CHECKING:
    from onnxq.qconfig import QConfig


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
