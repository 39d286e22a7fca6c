"""An observer inside a torch module: it watches a tensor, and its qparams are buffers.

The observer is one of onnxq.observers and decides as it does in calibration. Where a tensor's min
and max are all that it needs, torch reduces the tensor on its device, the observer sees the result,
and what it knows is kept in buffers, in memory that does not grow; any other observer is given a
copy of the tensor as a NumPy array, and what it knows goes into the state_dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from onnxq import dtypes
from onnxq.errors import CalibrationError, UnsupportedError
from onnxq.observers import NoopObserver
from onnxq.pytorch.numerics.compiling import never_compiled
from onnxq.pytorch.numerics.reduction import check_values, extremes
from onnxq.pytorch.numerics.rounding_ops import check_floats
from onnxq.pytorch.numerics.torch_ao_state import adopt
from onnxq.qparams import PerChannel, PerTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from onnxq.dtypes import QDType
    from onnxq.observers import Observer, ObserverSpec
    from onnxq.qparams import Granularity, QScheme

_SEEN = "seen_"  # buffers that hold the state of an observer that needs a range alone
_STATE = "observer."  # entries of the state_dict that hold another observer's state
_FLAGS = ("observer_enabled", "fake_quant_enabled", "has_observed")

Method = TypeVar("Method", bound="Callable[..., None]")


def _outside_graphs(method: Method) -> Method:
    """Where torch.compile leaves its graph, or says why not where fullgraph forbids it."""
    return never_compiled(
        method, "observers are NumPy: disable_observer() first, or compile without fullgraph"
    )


class Observing(nn.Module):
    """Watches what it is shown, and holds the scale and zero point that follow.

    Args:
        spec: the observer.

    Attributes:
        scale: buffer, float32, shape () or (channels,); (1,) before any data where per channel.
        zero_point: buffer, int32, same shape.
        observer: what finds them.
        has_observed: whether it has seen data.
        ran_unobserved: whether data passed before that, while the observer rested.
        observer_enabled: whether it watches.
        fake_quant_enabled: whether scale and zero point are used at once.

    Raises:
        QConfigError: arguments of the observer that do not fit together.
        UnsupportedError: a type that ONNX QuantizeLinear does not have.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, spec: ObserverSpec) -> None:
        super().__init__()
        self._observer_spec = spec
        self.observer = _checked(spec())
        self.observer_enabled = True
        self.fake_quant_enabled = True
        self.has_observed = False
        self.ran_unobserved = False
        self._stale = False  # the observer has seen more than scale and zero_point tell
        self._batches = 0
        start = self.observer.range.default(self.granularity)
        self.register_buffer("scale", torch.from_numpy(start.scale.copy()))
        self.register_buffer("zero_point", torch.from_numpy(start.zero_point.astype(np.int32)))
        if self.observer.needs_range_alone:
            for key, array in self.observer.state().items():
                self.register_buffer(_SEEN + key, torch.from_numpy(array.copy()))

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

    @property
    def granularity(self) -> Granularity:
        """Part of the tensor that one scale covers."""
        return PerChannel(self.ch_axis) if self.is_per_channel else PerTensor()

    def watch(self, x: Tensor) -> None:
        """Observes x while observer_enabled, and finds the scale; under torch.export, nothing.

        Raises:
            ShapeError: x holds integers.
            CalibrationError: NaN or Inf in x; another number of channels.
        """
        check_floats(x)
        if self.observer_enabled and not torch.compiler.is_exporting():
            self._observe(x.detach())
        elif not self.has_observed:
            self.ran_unobserved = True
        if self.fake_quant_enabled:
            self._refresh()

    @_outside_graphs
    def _observe(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        observer = self.observer
        try:
            if observer.needs_range_alone:
                ends = extremes(x, self.ch_axis if self.is_per_channel else None)
                observer.load_state(self._seen())
                observer.observe(ends, 1)  # after batch 0, which holds all that was before
                observer.compact()
                for key, array in observer.state().items():
                    self._assign(_SEEN + key, array)
            else:
                check_values(x)
                observer.observe(x.to("cpu", torch.float32).numpy(), self._batches)
                observer.compact()
        except CalibrationError as error:
            raise CalibrationError(f"{type(self).__name__}: {error}") from error
        self._batches += 1
        self.has_observed = True
        self._stale = True
        if self.fake_quant_enabled:
            self._refresh()  # here, so that compiled code is left once

    def _seen(self) -> dict[str, npt.NDArray[np.generic]]:
        return {
            name.removeprefix(_SEEN): buffer.cpu().numpy()
            for name, buffer in self.named_buffers(recurse=False)
            if name.startswith(_SEEN)
        }

    def _assign(self, name: str, array: npt.NDArray[np.generic]) -> None:
        """Into the buffer, in place where the shape allows: compiled code and DDP hold on to it."""
        self._set(name, torch.from_numpy(np.array(array)))

    def _set(self, name: str, values: Tensor) -> None:
        held = getattr(self, name)
        if held.shape == values.shape:
            held.data.copy_(values)
            return
        values = values.to(held.device, held.dtype)
        if isinstance(held, nn.Parameter):
            held.data = values  # an optimizer knows this parameter
        else:
            setattr(self, name, values)

    @_outside_graphs
    def _refresh_now(self) -> None:
        found = self.observer.calculate_qparams()
        if found.granularity != self.granularity:
            raise UnsupportedError(
                f"{self.observer} gives a scale for {found.granularity}; FakeQuantize rounds with "
                f"one for {self.granularity}."
            )
        self._assign("scale", found.scale)
        self._assign("zero_point", found.zero_point.astype(np.int32))
        self._stale = False

    def _refresh(self) -> None:
        if self._stale:
            self._refresh_now()

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> Self:
        """Moves the buffers; a model that is cast to half precision keeps its scales in float32."""
        before = {name: held.detach() for name, held in self._tensors()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
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
        self,
        destination: Any,
        prefix: str,
        keep_vars: bool,
    ) -> None:
        self._refresh()
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for flag in _FLAGS:
            destination[prefix + flag] = torch.tensor([getattr(self, flag)], dtype=torch.uint8)
        if not self.observer.needs_range_alone:
            for key, array in self.observer.state().items():
                destination[f"{prefix}{_STATE}{key}"] = torch.from_numpy(np.array(array))

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        *lists: list[str],
    ) -> None:
        if self.observer.needs_range_alone:
            axis = self.ch_axis if self.is_per_channel else None
            adopt(state_dict, prefix, self._observer_spec(), _SEEN, axis)
        for flag in _FLAGS:
            value = state_dict.pop(prefix + flag, None)
            if value is None:
                missing_keys.append(prefix + flag)
            else:
                setattr(self, flag, bool(value.item()))
        for name, held in self._tensors():
            value = state_dict.get(prefix + name)
            if value is None or value.shape == held.shape:
                continue
            if value.ndim == held.ndim or name.startswith(_SEEN):
                # another number of channels; of our own, as the caller keeps the state
                self._set(name, value.detach().clone())
        self._load_observer(state_dict, prefix + _STATE)
        self._stale = False
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *lists
        )
        _, errors = lists
        if self.observer.needs_range_alone and not self.scale.is_meta and not errors:
            self.observer.load_state(self._seen())  # with errors, torch raises in the end

    def _load_observer(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        found = {k for k in state_dict if k.startswith(prefix)}
        state = {k.removeprefix(prefix): state_dict.pop(k).cpu().numpy() for k in found}
        if state:
            self.observer = self._observer_spec.restore(state)


def _checked(observer: Observer) -> Observer:
    """The observer, if ONNX QuantizeLinear has its type."""
    if isinstance(observer, NoopObserver):
        raise UnsupportedError(
            f"{observer}: its tensor is stored as {observer.storage}, without scale and zero "
            "point; there is nothing to round to. Use a QConfigDynamic for float16 weights."
        )
    if not observer.dtype.is_integer or observer.dtype == dtypes.INT32:
        raise UnsupportedError(
            f"{observer}: ONNX QuantizeLinear does not give {observer.dtype}; use quint8, qint8, "
            "uint16, int16, uint4 or int4."
        )
    return observer
