"""The linear layer on int8 weights."""

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.pytorch.nn.quantized.weighted import Weighted


class Linear(Weighted):
    """y = x w^T + b; x: fake-quantized (..., in_features). In the exported model a QGemm.

    The arguments are those of torch.nn.quantized.Linear; bias=... is taken too, as torch.nn's.
    """

    float_type: ClassVar[type[nn.Module]] = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: torch.dtype = torch.qint8,  # noqa: ARG002  # of torch's signature; integers are int8
        *,
        bias: bool | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        with_bias = bias_ if bias is None else bias
        self.make_buffers((out_features, in_features), out_features if with_bias else None)
        self.to(device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (..., in_features) -> (..., out_features)."""
        if x.ndim == 2:
            return self.requantized(self.computed(x))
        rows = x.reshape(-1, x.shape[-1])  # Gemm takes matrices, and an int32 bias
        y = self.requantized(self.computed(rows))
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums and their ReLU in float32, not quantized yet."""
        return self.activated(F.linear(x, self.real_weight(), self.bias()))

    def extra_repr(self) -> str:
        """Sizes, scale and zero point."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, "
        text += self.qparams_repr()
        return text if self.bias_integers is not None else f"{text}, bias=False"
