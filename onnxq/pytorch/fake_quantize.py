"""FakeQuantize: rounds a tensor to the grid that will be deployed, while the model is trained.

    x -> observer (while it is on) -> scale, zero_point
    x -> (clamp(rint(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale

The observer is one of onnxq.observers and decides as it does in calibration. Where a tensor's min
and max are all that it needs, torch reduces the tensor on its device and the observer sees the
result; any other observer is given a copy of the tensor as a NumPy array.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor, nn

from onnxq import dtypes
from onnxq.errors import CalibrationError, ShapeError, UnsupportedError
from onnxq.observers import MovingAverageMinMaxObserver
from onnxq.pytorch import ops
from onnxq.pytorch.reduction import extremes
from onnxq.qconfig import FakeQuantSpec, ScaleRule
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from onnxq.dtypes import QDType
    from onnxq.observers import Observer
    from onnxq.qconfig import Part
    from onnxq.qparams import QScheme

_SEEN = "seen_"  # buffers that hold the state of an observer that needs a range alone
_STATE = "observer."  # entries of the state_dict that hold another observer's state
_FLAGS = ("observer_enabled", "fake_quant_enabled", "has_observed")
_CODES = {"uint8": torch.uint8, "int8": torch.int8, "uint16": torch.uint16, "int16": torch.int16}


class FakeQuantize(nn.Module):
    """Observes what passes and returns it rounded, with a straight-through gradient.

    The gradient is 1 where the code lies in [quant_min, quant_max], 0 where it was clamped. The
    observer and the rounding are both on at first, in train and eval mode alike. Under torch.export
    the observer rests.

    Args:
        observer: class or spec; finds scale and zero point.
        quant_min: smallest code; None: the observer's.
        quant_max: largest code.
        observer_kwargs: further arguments of the observer (dtype, qscheme, reduce_range, ...).

    Attributes:
        scale: buffer, float32, shape () or (channels,); (1,) before any data where per channel.
        zero_point: buffer, int32, same shape.
        observer: what finds them.
        has_observed: whether it has seen data.
        observer_enabled: whether it watches.
        fake_quant_enabled: whether values are rounded; False returns them as they are.

    Raises:
        QConfigError: arguments that the observer does not take, or that do not fit together.
        UnsupportedError: a type or scheme that ONNX QuantizeLinear does not have.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: object = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: object,
    ) -> None:
        super().__init__()
        self.spec = self.with_args(observer, quant_min, quant_max, **observer_kwargs)
        self.observer = _checked(self.spec.observer())
        self.observer_enabled = True
        self.fake_quant_enabled = True
        self.has_observed = False
        self._stale = False
        self._batches = 0
        start = self.observer.range.default(
            PerChannel(self.ch_axis) if self.is_per_channel else PerTensor()
        )
        self.register_buffer("scale", torch.from_numpy(start.scale.copy()))
        self.register_buffer(
            "zero_point", torch.from_numpy(start.zero_point.astype(np.int32, copy=True))
        )
        if self.observer.needs_range_alone:
            for key, array in self.observer.state().items():
                self.register_buffer(_SEEN + key, torch.from_numpy(array.copy()))

    @classmethod
    def with_args(
        cls,
        observer: object = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: object,
    ) -> FakeQuantSpec:
        """The value that a QConfig holds for such a module.

        Raises:
            QConfigError: an argument that the observer does not take.
        """
        ends = {"quant_min": quant_min, "quant_max": quant_max}
        given = {key: end for key, end in ends.items() if end is not None}
        return FakeQuantSpec(observer).with_args(**given, **observer_kwargs)

    @property
    def dtype(self) -> QDType:
        """Type of the codes."""
        return self.observer.dtype

    @property
    def qscheme(self) -> QScheme:
        """Affine or symmetric, per tensor or per channel."""
        return self.observer.qscheme

    @property
    def quant_min(self) -> int:
        """Smallest code."""
        return self.observer.quant_min

    @property
    def quant_max(self) -> int:
        """Largest code."""
        return self.observer.quant_max

    @property
    def is_per_channel(self) -> bool:
        """Whether each channel has a scale of its own."""
        return self.qscheme.per_channel

    @property
    def ch_axis(self) -> int:
        """Axis of the channels; -1 where there is one scale, as in torch."""
        return int(getattr(self.observer, "ch_axis", -1)) if self.is_per_channel else -1

    def forward(self, x: Tensor) -> Tensor:
        """x, rounded where fake_quant_enabled; its dtype and shape.

        Raises:
            ShapeError: x holds integers.
            CalibrationError: NaN or Inf in x while it is observed; another number of channels.
        """
        self.watch(x)
        return self.rounded(x) if self.fake_quant_enabled else x

    def watch(self, x: Tensor) -> None:
        """The first half of forward: observes x while observer_enabled, and finds the scale.

        Raises:
            ShapeError: x holds integers.
            CalibrationError: NaN or Inf in x; another number of channels.
        """
        if not x.dtype.is_floating_point:
            raise ShapeError(_no_integers(x))
        if self.observer_enabled and not torch.compiler.is_exporting():
            self._observe(x.detach())
        if self.fake_quant_enabled:
            self._refresh()

    def rounded(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """The second half: x rounded.

        Args:
            x: floating point, any shape.
            scale: in place of the one that was found; a bias may ask for a larger one.
        """
        return self._round(x, self.scale if scale is None else scale)

    def _round(self, x: Tensor, scale: Tensor) -> Tensor:
        return ops.fake_quantize(
            x, scale, self.zero_point, self.quant_min, self.quant_max, self.ch_axis
        )

    @torch.compiler.disable
    def _observe(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        observer = self.observer
        try:
            if observer.needs_range_alone:
                observer.load_state(self._seen())
                observer.observe(extremes(x, self.ch_axis if self.is_per_channel else None), 1)
                observer.compact()
                self._note(observer.state())
            else:
                observer.observe(x.to("cpu", torch.float32).numpy(), self._batches)
        except CalibrationError as error:
            raise CalibrationError(f"{type(self).__name__}: {error}") from error
        self._batches += 1
        self.has_observed = True
        self._stale = True

    def _seen(self) -> dict[str, npt.NDArray[np.generic]]:
        return {
            name.removeprefix(_SEEN): buffer.cpu().numpy()
            for name, buffer in self.named_buffers(recurse=False)
            if name.startswith(_SEEN)
        }

    def _note(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        for key, array in state.items():
            self._assign(_SEEN + key, array)

    def _assign(self, name: str, array: npt.NDArray[np.generic]) -> None:
        """Into the buffer, in place where the shape allows: compiled code and DDP hold on to it."""
        self._set(name, torch.from_numpy(np.array(array)))

    def _set(self, name: str, values: Tensor) -> None:
        held = getattr(self, name)
        if held.shape == values.shape:
            held.detach().copy_(values)
            return
        values = values.to(held.device, held.dtype)
        if isinstance(held, nn.Parameter):
            held.data = values  # an optimizer knows this parameter
        else:
            setattr(self, name, values)

    @torch.compiler.disable
    def _refresh_now(self) -> None:
        found = self.observer.calculate_qparams()
        self._assign("scale", found.scale)
        self._assign("zero_point", found.zero_point.astype(np.int32))
        self._stale = False

    def _refresh(self) -> None:
        if self._stale:
            self._refresh_now()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point): copies of the buffers, up to date with what was observed."""
        found = self.qparams()
        scale = torch.from_numpy(found.scale.copy()).to(self.scale.device)
        zero_point = torch.from_numpy(found.zero_point.astype(np.int32))
        return scale, zero_point.to(self.scale.device)

    def qparams(self) -> QParams:
        """Scale and zero point as onnxq's value; 1, 0 and a warning before any data."""
        self._refresh()
        if not self.has_observed:
            warnings.warn(
                f"{type(self).__name__} has seen no data: returning scale 1, zero_point 0. Run "
                "the model on data first.",
                UserWarning,
                stacklevel=2,
            )
        granularity = PerChannel(self.ch_axis) if self.is_per_channel else PerTensor()
        scale, zero_point = (b.detach().cpu().numpy() for b in (self.scale, self.zero_point))
        return QParams(scale, zero_point, self.dtype, granularity)

    def codes(self, x: Tensor) -> Tensor:
        """The codes of x: integers of the dtype that stores them, in [quant_min, quant_max]."""
        self._refresh()
        stored = _CODES[self.dtype.storage.name]
        zero_point = self.zero_point.to(stored)
        codes = ops.quantize_linear(x, self.scale.detach(), zero_point, self.ch_axis)
        limits = torch.iinfo(stored)
        if (self.quant_min, self.quant_max) == (limits.min, limits.max):
            return codes
        return codes.to(torch.int32).clamp_(self.quant_min, self.quant_max).to(stored)

    def enable_observer(self, enabled: bool = True) -> Self:
        """Lets the observer watch (the documented signature)."""
        self.observer_enabled = bool(enabled)
        return self

    def disable_observer(self) -> Self:
        """Keeps scale and zero point as they are."""
        return self.enable_observer(False)

    def enable_fake_quant(self, enabled: bool = True) -> Self:
        """Lets values be rounded (the documented signature)."""
        self.fake_quant_enabled = bool(enabled)
        return self

    def disable_fake_quant(self) -> Self:
        """Returns values as they are."""
        return self.enable_fake_quant(False)

    def extra_repr(self) -> str:
        """What tells two of them apart."""
        return (
            f"{self.observer}, codes={self.quant_min}..{self.quant_max}, "
            f"observer_enabled={self.observer_enabled}, "
            f"fake_quant_enabled={self.fake_quant_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        )

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> Self:
        """Moves the buffers; a model that is cast to half precision keeps its scales in float32."""
        before = {name: held.detach() for name, held in self._tensors()}
        super()._apply(fn, recurse)
        for name, now in self._tensors():
            if now.dtype != before[name].dtype:
                exact = before[name].to(now.device)
                if isinstance(now, nn.Parameter):
                    now.data = exact
                else:
                    setattr(self, name, exact)
        return self

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [*self.named_buffers(recurse=False), *self.named_parameters(recurse=False)]

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        self._refresh()
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for flag in _FLAGS:
            destination[prefix + flag] = torch.tensor([getattr(self, flag)], dtype=torch.uint8)
        if not self.observer.needs_range_alone:
            for key, array in self.observer.state().items():
                destination[f"{prefix}{_STATE}{key}"] = torch.from_numpy(np.array(array))

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        missing = args[2] if len(args) > 2 else []
        for flag in _FLAGS:
            value = state_dict.pop(prefix + flag, None)
            if value is not None:
                setattr(self, flag, bool(value.item()))
            elif isinstance(missing, list):
                missing.append(prefix + flag)
        for name, held in self._tensors():
            value = state_dict.get(prefix + name)
            if value is None or value.shape == held.shape:
                continue
            if value.ndim == held.ndim or name.startswith(_SEEN):
                self._set(name, value.detach())
        self._load_observer(state_dict, prefix + _STATE)
        self._stale = False
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _load_observer(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        found = {k for k in state_dict if k.startswith(prefix)}
        state = {k.removeprefix(prefix): state_dict.pop(k).cpu().numpy() for k in found}
        if state:
            self.observer = self.spec.observer.restore(state)


class LearnableFakeQuantize(FakeQuantize):
    """Learned step size (LSQ, Esser et al. 2020): scale is a parameter that is trained.

    The first batch that is observed gives its first value, through the observer, which then turns
    itself off: observer_enabled is False until enable_observer() asks for a new start. The zero
    point stays where the observer put it.
    """

    def __init__(
        self,
        observer: object = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: object,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        start = self.scale
        del self.scale
        self.scale = nn.Parameter(start)

    @classmethod
    def with_args(
        cls,
        observer: object = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: object,
    ) -> FakeQuantSpec:
        """The value that a QConfig holds for such a module.

        Raises:
            QConfigError: an argument that the observer does not take.
        """
        spec = super().with_args(observer, quant_min, quant_max, **observer_kwargs)
        return replace(spec, scale=ScaleRule.LEARNED)

    def _round(self, x: Tensor, scale: Tensor) -> Tensor:
        return ops.learned_fake_quantize(
            x, scale, self.zero_point, self.quant_min, self.quant_max, self.ch_axis
        )

    def _refresh(self) -> None:
        if self._stale:
            self._refresh_now()
            self.disable_observer()
        if torch.compiler.is_exporting():
            return
        with torch.no_grad():  # a step of the optimizer may have gone below
            self.scale.clamp_(min=self.observer.range.eps)


def fake_quantize_module(part: Part) -> FakeQuantize:
    """The module for what a QConfig holds.

    Args:
        part: FakeQuantSpec: the module observes and rounds; ObserverSpec: it only observes.

    Raises:
        UnsupportedError: a type or scheme that ONNX QuantizeLinear does not have.
    """
    if isinstance(part, FakeQuantSpec):
        learned = part.scale is ScaleRule.LEARNED
        return (LearnableFakeQuantize if learned else FakeQuantize)(part.observer)
    return FakeQuantize(part).disable_fake_quant()


def enable_observer(module: nn.Module) -> None:
    """For model.apply: lets the observer of a FakeQuantize watch."""
    if isinstance(module, FakeQuantize):
        module.enable_observer()


def disable_observer(module: nn.Module) -> None:
    """For model.apply: keeps scale and zero point of a FakeQuantize as they are."""
    if isinstance(module, FakeQuantize):
        module.disable_observer()


def enable_fake_quant(module: nn.Module) -> None:
    """For model.apply: lets a FakeQuantize round."""
    if isinstance(module, FakeQuantize):
        module.enable_fake_quant()


def disable_fake_quant(module: nn.Module) -> None:
    """For model.apply: lets a FakeQuantize return values as they are."""
    if isinstance(module, FakeQuantize):
        module.disable_fake_quant()


def _checked(observer: Observer) -> Observer:
    """The observer, if ONNX QuantizeLinear has its type."""
    if not observer.dtype.is_integer or observer.dtype == dtypes.INT32:
        raise UnsupportedError(
            f"{observer}: ONNX QuantizeLinear does not give {observer.dtype}; use quint8, qint8, "
            "uint16, int16, uint4 or int4."
        )
    return observer


def _no_integers(x: Tensor) -> str:
    return (
        f"FakeQuantize: got a tensor of {x.dtype}, shape {list(x.shape)}; wanted floating-point "
        "values. Integers (token ids, masks) are not quantized: leave them out of the quantized "
        "region, or convert them with .float() first."
    )
