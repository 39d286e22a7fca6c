"""Linear layers whose weight is fake-quantized while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

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

    FLOAT: ClassVar[tuple[type[nn.Module], ...]] = (nn.Linear,)

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

    def forward(self, x: Tensor) -> Tensor:
        """The product x @ fq(weight).T + fq32(bias)."""
        return F.linear(x, *self.deployed())

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the parameters of a float one that has a qconfig.

        Raises:
            ModelError: another type of module.
            QConfigError: no qconfig.
        """
        qconfig = cls.check_float(mod)
        linear: Any = mod[0] if isinstance(mod, nn.Sequential) else mod
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, qconfig)
        return made.take(linear.weight, linear.bias).train(mod.training)

    def to_float(self) -> nn.Module:
        """The float module again, with the parameters as they are now."""
        weight, bias = self.folded()
        linear: Any = nn.Linear(self.in_features, self.out_features, bias is not None)
        linear.weight = nn.Parameter(weight.detach())
        linear.bias = None if bias is None else nn.Parameter(bias.detach())
        linear.qconfig = self.qconfig
        return linear.train(self.training)  # type: ignore[no-any-return]
