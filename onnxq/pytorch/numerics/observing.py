"""An observer inside a torch module: it watches a tensor, and its qparams are buffers.

The observer is one of onnxq.observers and decides as it does in calibration. Where it needs a
tensor's min and max alone, these are buffers on the tensor's device, and so is what is computed of
them (onnxq.pytorch.numerics.min_max): no step reads a value on the host, and torch.compile traces
it whole. Any other observer is NumPy: it is given a copy of the tensor, and what it knows goes into
the state_dict.
"""

import warnings
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, UnsupportedError
from onnxq.observers import NoopObserver, Observer, ObserverSpec
from onnxq.pytorch.numerics.exact_buffers import ExactBuffers, never_compiled
from onnxq.pytorch.numerics.min_max import (
    UNSEEN,
    check_values,
    extremes,
    min_max_of,
    observer_state,
    rule_of,
    save_min_max,
    take_min_max,
)
from onnxq.pytorch.numerics.own_module import ModuleSpec
from onnxq.pytorch.numerics.ranks import has_ranks, mean_of_ranks, merged_of_ranks, widest_of_ranks
from onnxq.pytorch.numerics.rounding import check_floats
from onnxq.pytorch.numerics.torch_states import STATE, adopt
from onnxq.qparams import Granularity, PerChannel, PerTensor, QParams, QScheme

Method = TypeVar("Method", bound="Callable[..., None]")


def _outside_graphs(method: Method) -> Method:
    """Where torch.compile leaves its graph, or says why not where fullgraph forbids it."""
    return never_compiled(
        method,
        "this observer looks at all values, in NumPy: disable_observer() first, compile without "
        "fullgraph, or choose one that follows from min and max",
    )


class Observing(ExactBuffers):
    """Watches what it is shown, and holds the scale and zero point that follow.

    In train mode under DistributedDataParallel min and max are those of all ranks' tensors.

    Attributes, beside those that FakeQuantize documents:
        ran_unobserved: whether data passed before any was seen, while the observer rested.
        is_replicated: whether all ranks are shown the same values: those of a weight.
    """

    scale: Tensor
    zero_point: Tensor
    min_max: Tensor
    left_out: Tensor
    _span: Tensor
    FLAGS: tuple[str, ...] = ("observer_enabled", "has_observed")

    def __init__(self, spec: ObserverSpec) -> None:
        super().__init__()
        self._observer_spec = spec
        self._observer = _checked(spec())
        self.own = spec.module() if isinstance(spec, ModuleSpec) else None
        self._rule = rule_of(self._observer) if self.own is None else None
        self.observer_enabled = True
        self.has_observed = False
        self.ran_unobserved = False
        self.is_replicated = False
        self._stale = False  # more was seen than scale and zero_point tell
        self._batches = 0  # of a NumPy observer
        start = self._observer.range.default(self.granularity)
        self.register_buffer("scale", torch.from_numpy(start.scale.copy()))
        self.register_buffer("zero_point", torch.from_numpy(start.zero_point.astype(np.int32)))
        if self._rule is not None:
            shape = (2, 0) if self.is_per_channel else (2,)
            self.register_buffer("min_max", torch.full(shape, UNSEEN), persistent=False)
            self.register_buffer("left_out", torch.zeros((), dtype=torch.int64))
            span = torch.tensor(self._rule.span, dtype=torch.float32)
            self.register_buffer("_span", span, persistent=False)

    @property
    def observer(self) -> Observer:
        """The observer, with what it has seen; read on the host."""
        if self._rule is not None and not self.min_max.is_meta:
            state = observer_state(self._observer, self.min_max.cpu().numpy())
            self._observer.load_state(state)
        return self._observer

    @property
    def dtype(self) -> QDType:
        """Type of the integers."""
        return self._observer.dtype

    @property
    def qscheme(self) -> QScheme:
        """Affine or symmetric, per tensor or per channel."""
        return self._observer.qscheme

    @property
    def quant_min(self) -> int:
        """Smallest integer."""
        return self._observer.quant_min

    @property
    def quant_max(self) -> int:
        """Largest integer."""
        return self._observer.quant_max

    @property
    def is_per_channel(self) -> bool:
        """Whether each channel has a scale of its own."""
        return self.qscheme.per_channel

    @property
    def ch_axis(self) -> int:
        """Axis of the channels; -1 where there is one scale, as in torch."""
        return int(getattr(self._observer, "ch_axis", -1)) if self.is_per_channel else -1

    @property
    def granularity(self) -> Granularity:
        """Part of the tensor that one scale covers."""
        return PerChannel(self.ch_axis) if self.is_per_channel else PerTensor()

    @property
    def min_val(self) -> Tensor:
        """Smallest value that counts, float32 () or (channels,); inf or empty before any data."""
        return self.min_max[0].neg()

    @property
    def max_val(self) -> Tensor:
        """Largest value that counts, likewise."""
        return self.min_max[1]

    def forward(self, x: Tensor) -> Tensor:
        """The tensor as it is; watched while observer_enabled."""
        self.watch(x)
        return x

    def watch(self, x: Tensor) -> None:
        """Observes x while observer_enabled; under torch.export, nothing."""
        check_floats(x)
        if self.observer_enabled and not torch.compiler.is_exporting():
            self._observe(x.detach())
        elif not self.has_observed:
            self.ran_unobserved = True

    @property
    def needs_range_alone(self) -> bool:
        """Whether min and max of a batch are all that counts of it."""
        return self.own is None and self._observer.needs_range_alone

    def _observe(self, x: Tensor) -> None:
        if self.own is not None:
            if x.numel():
                self.own(x)
                self._note_seen()
            return
        if self._rule is None:
            self._show(x)
            return
        shares = self.training and not self.is_replicated and has_ranks()
        if x.numel() == 0 and not shares:
            return
        min_max = min_max_of(x, self.ch_axis if self.is_per_channel else None)
        if shares:
            min_max = widest_of_ranks(min_max)
        if self.min_max.shape != min_max.shape:
            self._make_room(min_max)
        new, is_left_out = self._rule.seen_with(self.min_max, min_max)
        self.min_max.copy_(new)
        self.left_out.add_(is_left_out)
        self._note_seen()

    def widen(self, min_max: Tensor) -> None:
        """Lets min and max that were found elsewhere count too: (-min, max), as `min_max`."""
        self.min_max.copy_(torch.maximum(self.min_max, min_max))
        self._stale = True
        self._refresh()

    def _make_room(self, min_max: Tensor) -> None:
        before = self.min_max.shape[-1]
        if self.min_max.ndim != min_max.ndim or before:
            raise CalibrationError(
                f"{type(self).__name__}: got {min_max.shape[-1]} channels on axis {self.ch_axis}; "
                f"before there were {before}. Is ch_axis the channels' axis?"
            )
        self.min_max = torch.full_like(min_max, UNSEEN)

    @_outside_graphs
    def _show(self, x: Tensor) -> None:
        if x.numel() == 0:
            return
        observer = self._observer
        axis = self.ch_axis if self.is_per_channel else None
        try:
            check_values(x)
            alone = observer.needs_range_alone
            shown = extremes(x, axis) if alone else x.to("cpu", torch.float32).numpy()
            observer.observe(shown, self._batches)
            observer.compact()
        except CalibrationError as error:
            raise CalibrationError(f"{type(self).__name__}: {error}") from error
        self._batches += 1
        self._note_seen()

    def _note_seen(self) -> None:
        self.has_observed = self._stale = True

    def _refresh(self) -> None:
        """Brings scale and zero point up to date with what was seen."""
        if not self._stale:
            return
        if self.own is not None:
            self._hold(self._own_qparams(*self.own.calculate_qparams()))
        elif self._rule is None:
            self._ask()
        else:
            scale, zero_point = self._rule.scale_and_zero_point(self.min_max, self._span)
            self.set_tensor("scale", scale)
            self.set_tensor("zero_point", zero_point.to(torch.int32))
        self._stale = False

    @_outside_graphs
    def _ask(self) -> None:
        found = self._observer.calculate_qparams()
        if found.granularity != self.granularity:
            raise UnsupportedError(
                f"{self._observer} gives a scale for {found.granularity}; FakeQuantize rounds with "
                f"one for {self.granularity}."
            )
        self._hold(found)

    def _own_qparams(self, scale: Any, zero_point: Any) -> QParams:
        """Scale and zero point of a user's module, in the shape of its qscheme."""
        shape = (-1,) if self.is_per_channel else ()
        numbers = [torch.as_tensor(x).detach().cpu().numpy() for x in (scale, zero_point)]
        if not self.is_per_channel and numbers[0].size != 1:
            raise UnsupportedError(
                f"{type(self.own).__name__} gives {numbers[0].size} scales; its qscheme says one. "
                "Give it an attribute `qscheme` of torch's, and `ch_axis`."
            )
        scales, zeros = (x.reshape(shape) for x in numbers)
        return QParams(scales.astype(np.float32), np.rint(zeros), self.dtype, self.granularity)

    def _hold(self, qparams: QParams) -> None:
        self.set_tensor("scale", torch.from_numpy(qparams.scale.copy()))
        self.set_tensor("zero_point", torch.from_numpy(qparams.zero_point.astype(np.int32)))

    def check_left_out(self) -> None:
        """Asks the device whether batches were left out."""
        if self._rule is None or self.left_out.is_meta:
            return
        count = int(self.left_out)
        if count:
            raise CalibrationError(
                f"{type(self).__name__}: {count} of the batches that it watched held values that "
                "are NaN or infinite in float32, or a range wider than float32 can say. Lower the "
                "learning rate, or correct the input; a mask of -inf has to be boolean, or a "
                "constant of the module. Scale and zero point are those of the other batches: "
                "accept them with model.apply(forget_left_out)."
            )

    def qparams(self) -> QParams:
        """Scale and zero point as onnxq's value; 1, 0 and a warning before any data."""
        self.check_left_out()
        self._refresh()
        if not self.has_observed:
            warnings.warn(
                f"{type(self).__name__} has seen no data: returning scale 1, zero_point 0. Run the "
                "model on data first.",
                stacklevel=2,
            )
        scale, zero_point = (b.detach().cpu().numpy() for b in (self.scale, self.zero_point))
        return QParams(scale, zero_point, self.dtype, self.granularity)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero_point), (1,) or (channels,): copies of the buffers, up to date."""
        self.qparams()
        return self.scale.detach().reshape(-1).clone(), self.zero_point.reshape(-1).clone()

    def synchronize(self) -> None:
        """Takes over what the other ranks have seen; see `synchronize_ranks`."""
        if self.own is not None:
            for part in (*self.own.parameters(), *self.own.buffers()):
                distributed.broadcast(part.detach(), 0)
        elif self._rule is None:
            self._observer = merged_of_ranks(self._observer)
        elif self._rule.averaging_constant is None:
            self.min_max.copy_(widest_of_ranks(self.min_max))
        else:
            self.min_max.copy_(mean_of_ranks(self.min_max))
        # a scale that was given without data stays
        has_seen = self._rule is None or bool(self.min_max.isfinite().all())
        self._stale = self.has_observed and has_seen
        self._refresh()

    def reset_min_max_vals(self) -> None:
        """Forgets what was seen; scale and zero point stay until the next batch."""
        self._observer = self._observer_spec()
        if self.own is not None:
            self.own = self._observer_spec.module()  # type: ignore[attr-defined]  # a ModuleSpec
        if self._rule is not None:
            self.min_max.fill_(UNSEEN)
            self.left_out.zero_()

    def enable_observer(self, enabled: bool = True) -> Self:
        """Lets the observer watch (the documented signature)."""
        self.observer_enabled = bool(enabled)
        switch = getattr(self.own, "enable_observer", None)
        if switch is not None:
            switch(enabled)
        return self

    def disable_observer(self) -> Self:
        """Keeps scale and zero point as they are."""
        return self.enable_observer(False)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self._refresh()
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for flag in self.FLAGS:
            destination[prefix + flag] = torch.tensor([getattr(self, flag)], dtype=torch.uint8)
        if self._rule is not None:
            save_min_max(destination, prefix, self.min_max)
            return
        for key, array in self._observer.state().items():
            destination[f"{prefix}{STATE}{key}"] = torch.from_numpy(np.array(array))

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        *lists: list[str],
    ) -> None:
        flags = {flag: getattr(self, flag) for flag in self.FLAGS if flag != "has_observed"}
        adopt(state_dict, prefix, self._observer_spec, flags)
        if self._rule is not None:
            self._load_min_max(state_dict, prefix, missing_keys)
        self._load_observer(state_dict, prefix + STATE)
        for flag in self.FLAGS:
            value = state_dict.pop(prefix + flag, None)
            if value is None:
                missing_keys.append(prefix + flag)
            else:
                setattr(self, flag, bool(value.item()))
        self.fit(state_dict, prefix)
        self._stale = False
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *lists
        )

    def _load_min_max(self, state_dict: dict[str, Tensor], prefix: str, missing: list[str]) -> None:
        found = take_min_max(state_dict, prefix, missing)
        # with another rank the scale has another one too: torch says so
        if found is not None and found.ndim == self.min_max.ndim:
            self.set_tensor("min_max", found)
        # checkpoints of torch, and of onnxq before it counted
        state_dict.setdefault(prefix + "left_out", torch.zeros_like(self.left_out))

    def _load_observer(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        found = {k for k in state_dict if k.startswith(prefix)}
        state = {k.removeprefix(prefix): state_dict.pop(k).cpu().numpy() for k in found}
        if state:
            self._observer = self._observer_spec.restore(state)
            self._batches = 1  # behind the one that stands for all


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
