"""The linear layer on int8 weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.pytorch.nn.quantized.weighted import Weighted, check_layer, float_weights


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
        return self.in_rows(x, lambda rows: self.requantized(self.computed(rows)))

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums and their ReLU in float32, not quantized yet."""
        return self.activated(F.linear(x, self.real_weight(), self.bias()))

    @staticmethod
    def in_rows(x: torch.Tensor, of_rows: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """of_rows(x as a matrix), with x's leading axes: Gemm takes matrices, and an int32 bias."""
        if x.ndim == 2:
            return of_rows(x)
        y = of_rows(x.reshape(-1, x.shape[-1]))
        return y.reshape(*x.shape[:-1], y.shape[-1])

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a prepared one: of nn.qat or nn.intrinsic.qat, or torch.nn's, observed.

        Raises:
            UnsupportedError: another type of module.
            CalibrationError: no data was seen.
        """
        check_layer(mod, cls.float_type, cls.__name__)
        source = float_weights(mod, cls.__name__)
        out_features, in_features = source.weight.shape
        return cls(in_features, out_features, source.bias is not None).take(mod, source)

    def extra_repr(self) -> str:
        """Sizes, scale and zero point."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, "
        text += self.qparams_repr()
        return text if self.bias_integers is not None else f"{text}, bias=False"
