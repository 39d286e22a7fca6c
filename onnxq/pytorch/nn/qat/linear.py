"""Linear layers whose weight is fake-quantized while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.nn.qat.base import QatModule

if TYPE_CHECKING:
    import torch

    from onnxq.qconfig import QConfig


class Linear(QatModule, nn.Linear):
    """nn.Linear with a fake-quantized weight.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    float_type: ClassVar[type[nn.Module]] = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: QConfig | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self.set_qconfig(qconfig)

    @classmethod
    def arguments(cls, layer: Any) -> dict[str, Any]:
        """Sizes, and whether there is a bias."""
        sizes = {"in_features": layer.in_features, "out_features": layer.out_features}
        return sizes | {"bias": layer.bias is not None}

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:  # noqa: ARG002  # some take others
        """The linear layer x @ weight.T + bias."""
        return F.linear(x, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """The linear layer x @ fq(weight).T + fq32(bias)."""
        return self.activated(self.pre_activation(x))
