"""Linear with ReLU or batch norm, in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm
from onnxq.pytorch.nn.intrinsic.qat.conv_bn import check_batch_norm
from onnxq.pytorch.nn.qat.linear import Linear

if TYPE_CHECKING:
    from onnxq.qconfig import QConfig


class LinearReLU(Linear):
    """Linear and ReLU."""

    FLOAT = (intrinsic.LinearReLU,)

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of x @ fq(weight).T + fq32(bias)."""
        return F.relu(super().forward(x))

    def to_float(self) -> nn.Module:
        """The fused float module again, with the parameters as they are now."""
        fused = intrinsic.LinearReLU(super().to_float(), nn.ReLU()).train(self.training)
        fused.qconfig = self.qconfig  # type: ignore[assignment]  # modules take any attribute
        return fused


class LinearBn1d(WithBatchNorm, Linear):
    """Linear and BatchNorm1d; freeze_bn: starts with frozen statistics.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    FLOAT = (intrinsic.LinearBn1d,)

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
        self.set_batch_norm(nn.BatchNorm1d(out_features, eps, momentum), freeze_bn)

    def op(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:  # noqa: ARG002
        """The product."""
        return F.linear(x, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """The product with batch norm."""
        return self.pre_activation(x)

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the parameters of a fused float one that has a qconfig.

        Raises:
            ModelError: another type of module.
            QConfigError: no qconfig.
        """
        qconfig = cls.check_float(mod)
        parts: Any = mod
        linear, bn = parts[0], parts[1]
        made = cls(
            linear.in_features, linear.out_features, linear.bias is not None, qconfig=qconfig
        )
        made.take(linear.weight, linear.bias)
        made.bn = check_batch_norm(bn)
        return made.train(mod.training)
