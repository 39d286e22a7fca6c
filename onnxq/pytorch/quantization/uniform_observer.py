"""ObserverBase, the documented contract, and observers that decide as onnxq's of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.pytorch.quantization.with_args import WithArgs

if TYPE_CHECKING:
    from onnxq import observers
    from onnxq.observers import ObserverSpec
    from onnxq.qparams import QParams

EPS = torch.finfo(torch.float32).eps


class ObserverBase(nn.Module):
    """A module that watches what passes it, and then says a scale and a zero point.

    Args:
        dtype: of the integers: torch.quint8, torch.qint8, torch.qint32.
    """

    def __init__(self, dtype: torch.dtype = torch.quint8) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """The tensor itself, after it was observed."""
        self.observe(x)
        return x

    def observe(self, x: Tensor) -> None:
        """Takes a batch into account."""
        raise NotImplementedError

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point) for what was seen."""
        raise NotImplementedError

    @classmethod
    def with_args(cls, **kwargs: Any) -> WithArgs:
        """The class and its arguments, as a QConfig holds them."""
        return WithArgs(cls, kwargs)


Observer = ObserverBase


class UniformObserver(ObserverBase):
    """An observer whose decisions are those of onnxq's observer of the same name.

    Args:
        arguments: of that observer, with torch's dtypes and qschemes.
    Attributes:
        dtype: torch dtype of the integers.
        qscheme: torch's affine or symmetric, per tensor or per channel.
        quant_min: smallest integer.
        quant_max: largest integer.
        reduce_range: whether half of the integers are used.
        eps: buffer (1,), smallest scale; a checkpoint may say another.
    Raises:
        QConfigError: arguments that do not fit together.
    """

    decides: ClassVar[type[observers.Observer]]
    eps: Tensor

    def __init__(
        self,
        dtype: torch.dtype,
        qscheme: torch.qscheme,
        reduce_range: bool,
        quant_min: int | None,
        quant_max: int | None,
        eps: float,
        **arguments: Any,
    ) -> None:
        super().__init__(dtype)
        self.spec: ObserverSpec = self.decides.with_args(
            dtype=dtype,
            qscheme=qscheme,
            reduce_range=reduce_range,
            quant_min=quant_min,
            quant_max=quant_max,
            eps=eps,
            **arguments,
        )
        decided = self.spec()
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.register_buffer("eps", torch.tensor([eps]))
        self.quant_min, self.quant_max = decided.quant_min, decided.quant_max
        self.ch_axis = int(getattr(decided, "ch_axis", None) or 0)

    def decided(self) -> QParams:
        """Scale and zero point as onnxq's value."""
        raise NotImplementedError

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale float32, zero_point int32): shape (1,) or (channels,); 1 and 0 before any data."""
        found = self.decided()
        device = next((b.device for b in self.buffers()), torch.device("cpu"))
        scale = torch.from_numpy(np.atleast_1d(found.scale).copy())
        zero_point = torch.from_numpy(np.atleast_1d(found.zero_point).astype(np.int32))
        return scale.to(device), zero_point.to(device)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.spec = self.spec.with_args(eps=float(self.eps))

    def extra_repr(self) -> str:
        """The arguments that are not defaults."""
        return ", ".join(f"{key}={value}" for key, value in self.spec.args)
