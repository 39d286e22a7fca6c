"""ObserverBase, the documented contract, and observers that decide as onnxq's of the same name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from onnxq import observers
from onnxq.errors import CalibrationError, ShapeError
from onnxq.observers import ObserverSpec
from onnxq.pytorch.modules.torch_qconfig import own_part
from onnxq.pytorch.numerics.min_max import UNSEEN, min_max_of, observer_state, rule_of
from onnxq.qconfig import Part
from onnxq.qparams import QParams

# --- Makers of modules: a class with arguments, as `with_args` gives them.


@dataclass(frozen=True, slots=True)
class WithArgs:
    """A class and keyword arguments: calling it makes the module.

    Two of the same class and arguments are equal. What a QConfig holds is one of these, or a class.
    """

    func: Callable[..., Any]
    keywords: dict[str, Any] = field(default_factory=dict)

    def __call__(self, **more: Any) -> Any:
        """The module that the class makes of the arguments."""
        return self.func(**{**self.keywords, **more})

    def with_args(self, **more: Any) -> WithArgs:
        """A maker with some arguments replaced."""
        return WithArgs(self.func, {**self.keywords, **more})

    def weight_part(self) -> Part:
        """Part of an onnxq.qconfig.QConfig for this maker."""
        return own_part(self, "QConfig")

    activation_part = weight_part

    def __hash__(self) -> int:
        return hash((self.func, tuple(sorted(self.keywords))))

    def __repr__(self) -> str:
        name = getattr(self.func, "__name__", repr(self.func))
        return f"{name}({', '.join(f'{k}={v}' for k, v in self.keywords.items())})"


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
    """An observer whose decisions are those of onnxq's observer of the same name."""

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


# --- Observers of ranges: smallest and largest values, or moving averages of them, in buffers.


class RangeObserver(UniformObserver):
    """An observer of ranges: two buffers on the tensor's device, updated there without a copy."""

    min_val: Tensor
    max_val: Tensor
    has_channels: ClassVar[bool] = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        factory: dict[str, Any] = kwargs.pop("factory_kwargs", None) or {}
        super().__init__(*args, **kwargs)
        shape = (0,) if self.has_channels else ()
        self.register_buffer("min_val", torch.full(shape, float("inf")))
        self.register_buffer("max_val", torch.full(shape, float("-inf")))
        self.to(factory.get("device"))

    def reset_min_max_vals(self) -> None:
        """Forgets what was seen."""
        # in place: DDP and graphs hold on to the buffers
        for limit, unseen in ((self.min_val, float("inf")), (self.max_val, float("-inf"))):
            limit.data = torch.full((0,) if self.has_channels else (), unseen, device=limit.device)

    def observe(self, x: Tensor) -> None:
        """Folds the batch's min and max into min_val and max_val; an empty one changes nothing."""
        if x.numel() == 0:
            return
        x = x.detach().to(self.min_val.device, self.min_val.dtype)
        min_max = min_max_of(x, self.ch_axis if self.has_channels else None)
        seen = torch.stack([self.min_val.neg(), self.max_val])
        if seen.shape != min_max.shape:
            if seen.numel():
                raise ShapeError(
                    f"{type(self).__name__}: got {min_max.shape[-1]} channels; the batches before "
                    f"had {seen.shape[-1]}. Is ch_axis {self.ch_axis} the channels' axis?"
                )
            seen = torch.full_like(min_max, UNSEEN)
            self.min_val.data, self.max_val.data = seen[0].neg(), seen[1].clone()
        rule = rule_of(self.spec())
        assert rule is not None, "of observers of ranges"
        low, high = rule.folded(seen, min_max)
        self.min_val.copy_(low.neg())
        self.max_val.copy_(high)

    def decided(self) -> QParams:
        """Scale and zero point of [min_val, max_val]."""
        min_max = torch.stack([self.min_val.neg(), self.max_val]).detach().cpu()
        if bool(min_max.isnan().any()):
            raise CalibrationError(f"{type(self).__name__}: it was shown NaN; correct the input.")
        return self.spec.restore(observer_state(self.spec(), min_max.numpy())).calculate_qparams()

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name in ("min_val", "max_val"):
            loaded = state_dict.get(prefix + name)
            held = getattr(self, name)
            if isinstance(loaded, Tensor) and loaded.shape != held.shape:
                held.data = torch.empty_like(loaded, device=held.device)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class MinMaxObserver(RangeObserver):
    """The range is that of all values seen: min_val = min(min_val, min(x)), max_val alike."""

    decides = observers.MinMaxObserver

    def __init__(
        self,
        dtype: torch.dtype = torch.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(
            dtype, qscheme, reduce_range, quant_min, quant_max, eps, factory_kwargs=factory_kwargs
        )


class PerChannelMinMaxObserver(RangeObserver):
    """A range for each channel along ch_axis, of all its values seen."""

    decides = observers.PerChannelMinMaxObserver
    has_channels = True

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: torch.dtype = torch.quint8,
        qscheme: torch.qscheme = torch.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(
            *(dtype, qscheme, reduce_range, quant_min, quant_max, eps),
            factory_kwargs=factory_kwargs,
            ch_axis=ch_axis,
        )


class MovingAverageMinMaxObserver(RangeObserver):
    """The range is that of the moving averages of the batches' min and max."""

    decides = observers.MovingAverageMinMaxObserver

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: torch.dtype = torch.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            *(dtype, qscheme, reduce_range, quant_min, quant_max, eps),
            factory_kwargs=factory_kwargs,
            averaging_constant=averaging_constant,
        )
        self.averaging_constant = averaging_constant


class MovingAveragePerChannelMinMaxObserver(RangeObserver):
    """A range for each channel, of the moving averages of its min and max."""

    decides = observers.MovingAveragePerChannelMinMaxObserver
    has_channels = True

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: torch.dtype = torch.quint8,
        qscheme: torch.qscheme = torch.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        factory_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            *(dtype, qscheme, reduce_range, quant_min, quant_max, eps),
            factory_kwargs=factory_kwargs,
            averaging_constant=averaging_constant,
            ch_axis=ch_axis,
        )
        self.averaging_constant = averaging_constant
