"""Observers as modules, as torch.quantization documents them: obs(x) returns x and has seen it.

    obs = MinMaxObserver(dtype=torch.quint8)
    for batch in batches:
        obs(batch)
    scale, zero_point = obs.calculate_qparams()

The formulas by which min_val and max_val become a scale and a zero point are those of
onnxq.observers, where an observer of the same name decides; `prepare` makes its observers of the
same QConfigs.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxq import observers
from onnxq.errors import ModelError, UnsupportedError, listed
from onnxq.observers import ObserverSpec
from onnxq.observers.histogram import MIN_BINS
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.numerics.torch_states import histogram_state
from onnxq.pytorch.quantization.uniform_observer import EPS, UniformObserver, WithArgs
from onnxq.pytorch.quantization.uniform_observer import MinMaxObserver as MinMaxObserver
from onnxq.pytorch.quantization.uniform_observer import (
    MovingAverageMinMaxObserver as MovingAverageMinMaxObserver,
)
from onnxq.pytorch.quantization.uniform_observer import (
    MovingAveragePerChannelMinMaxObserver as MovingAveragePerChannelMinMaxObserver,
)
from onnxq.pytorch.quantization.uniform_observer import Observer as Observer
from onnxq.pytorch.quantization.uniform_observer import ObserverBase as ObserverBase
from onnxq.pytorch.quantization.uniform_observer import (
    PerChannelMinMaxObserver as PerChannelMinMaxObserver,
)
from onnxq.qparams import QParams

# --- States of a prepared model's observers, apart from its weights: to be saved, and loaded.


def get_observer_state_dict(mod: nn.Module) -> OrderedDict[str, Tensor]:
    """The entries of the state_dict that belong to observers and FakeQuantize modules."""
    prefixes = _prefixes(mod)
    state = mod.state_dict()
    return OrderedDict((key, state[key]) for key in state if key.startswith(prefixes))


def load_observer_state_dict(mod: nn.Module, obs_dict: Mapping[str, Tensor]) -> None:
    """Gives observers and FakeQuantize modules what `get_observer_state_dict` returned.

    Args:
        mod: prepared in the same way; changed in place, weights stay.
        obs_dict: by the names of the state_dict.
    Raises:
        ModelError: entries are missing, or belong to nothing in it.
    """
    found = mod.load_state_dict(obs_dict, strict=False)
    missing = [key for key in found.missing_keys if key.startswith(_prefixes(mod))]
    for wrong, what in ((missing, "are missing"), (found.unexpected_keys, "belong to no observer")):
        if wrong:
            raise ModelError(
                f"load_observer_state_dict: {listed(wrong)} {what}. Prepare the model as the one "
                "whose observers were saved."
            )


def _prefixes(mod: nn.Module) -> tuple[str, ...]:
    parts = mod.named_modules()
    return tuple(f"{name}." for name, one in parts if isinstance(one, Observing | ObserverBase))


class HistogramObserver(UniformObserver):
    """The qparams of least squared error, searched on a histogram of all values.

    The histogram is onnxq's: 4096 bins for each sign, which any order of batches fills alike. What
    it holds is in the state_dict as one entry.

    Args:
        bins: for each sign; None: 4096. Fewer than 64 are 64.
        upsample_rate: documented; without effect.
        dtype: as MinMaxObserver; the others too.
    """

    decides = observers.HistogramObserver
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        bins: int | None = None,
        upsample_rate: int | None = None,
        dtype: torch.dtype = torch.quint8,
        qscheme: torch.qscheme = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
    ) -> None:
        given: dict[str, Any] = {} if bins is None else {"bins": max(bins, MIN_BINS)}
        super().__init__(
            *(dtype, qscheme, reduce_range, quant_min, quant_max, eps),
            upsample_rate=upsample_rate,
            **given,
        )
        self.register_buffer("min_val", torch.tensor(float("inf")))
        self.register_buffer("max_val", torch.tensor(float("-inf")))
        self.to((factory_kwargs or {}).get("device"))
        self._observer = self.spec()
        self.bins, self._batches = int(vars(self._observer)["bins"]), 0

    def observe(self, x: Tensor) -> None:
        """Counts the values of x on the CPU; an empty x changes nothing.

        Raises:
            CalibrationError: NaN or Inf in x.
        """
        if x.numel() == 0:
            return
        values = x.detach().to("cpu", torch.float32)
        self._observer.observe(values.numpy(), self._batches)
        self._batches += 1
        low, high = (limit.to(self.min_val.device) for limit in torch.aminmax(values))
        self.min_val.copy_(torch.minimum(self.min_val, low))
        self.max_val.copy_(torch.maximum(self.max_val, high))

    def decided(self) -> QParams:
        """Scale and zero point of least squared error."""
        return self._observer.calculate_qparams()

    def get_extra_state(self) -> dict[str, Tensor]:
        """The histogram, as tensors by name."""
        return {k: torch.from_numpy(np.array(v)) for k, v in self._observer.state().items()}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Takes over a histogram."""
        self._observer = self.spec.restore({k: v.cpu().numpy() for k, v in state.items()})

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes torch's histogram for onnxq's."""
        state = histogram_state(state_dict, prefix, self.spec)
        if state is not None:
            state_dict[f"{prefix}_extra_state"] = state
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class _WithoutScale(ObserverBase):
    """An observer that looks at no ranges."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Raises UnsupportedError, always."""
        raise UnsupportedError(f"{type(self).__name__} computes no scale: it looks at no ranges.")


class RecordingObserver(_WithoutScale):
    """Keeps a copy of every tensor, for debugging; it says no scale.

    Attributes:
        tensor_val: the copies, in order.
    """

    def __init__(self, dtype: torch.dtype = torch.quint8, **_: Any) -> None:
        super().__init__(dtype)
        self.tensor_val: list[Tensor] = []

    def observe(self, x: Tensor) -> None:
        """Keeps a copy."""
        self.tensor_val.append(x.detach().clone())

    def get_tensor_value(self) -> list[Tensor]:
        """The copies, in order."""
        return self.tensor_val


class NoopObserver(_WithoutScale):
    """Lets tensors pass: for weights that are stored as float16, which need no range."""

    def __init__(
        self, dtype: torch.dtype = torch.float16, custom_op_name: str = "", **_: Any
    ) -> None:
        super().__init__(dtype)
        self.custom_op = custom_op_name

    def observe(self, x: Tensor) -> None:
        """Does nothing."""


class PlaceholderObserver(NoopObserver):
    """Stands where a tensor is quantized when the model runs, and says with which type.

    Args:
        dtype: of the integers; torch.float32: none.
        is_dynamic: whether the scale is found when the model runs.
        compute_dtype: in older torch, the type of such integers.
    """

    def __init__(
        self,
        dtype: torch.dtype = torch.float32,
        is_dynamic: bool = False,
        compute_dtype: torch.dtype | None = None,
        **_: Any,
    ) -> None:
        super().__init__(dtype)
        self.is_dynamic, self.compute_dtype = is_dynamic, compute_dtype


def of_spec(spec: ObserverSpec) -> WithArgs:
    """The maker of a module that observes as onnxq's observer of that spec does."""
    kind = _BY_NAME.get(spec.name)
    if kind is None:
        raise UnsupportedError(
            f"{spec.name} has no module here; known: {', '.join(sorted(_BY_NAME))}. Use the "
            "QConfig of onnxq.qconfig that holds it."
        )
    return WithArgs(kind, {key: _of_torch(value) for key, value in spec.args})


_BY_NAME: dict[str, type[ObserverBase]] = {
    kind.__name__: kind
    for kind in (
        MinMaxObserver,
        PerChannelMinMaxObserver,
        MovingAverageMinMaxObserver,
        MovingAveragePerChannelMinMaxObserver,
        HistogramObserver,
        RecordingObserver,
        NoopObserver,
    )
}
_DTYPES = {"uint8": torch.quint8, "int8": torch.qint8, "int32": torch.qint32}


def _of_torch(value: object) -> object:
    """An argument of onnxq's observer as torch has it."""
    name = getattr(value, "name", "")
    if name in _DTYPES:
        return _DTYPES[name]
    scheme = getattr(torch, str(getattr(value, "value", "")), None)
    if isinstance(scheme, torch.qscheme):
        return scheme
    return torch.float16 if str(value) == "float16" else value


default_observer = of_spec(observers.default_observer)
default_weight_observer = of_spec(observers.default_weight_observer)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_histogram_observer = HistogramObserver.with_args(reduce_range=True)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_channel_symmetric
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=torch.quint8, is_dynamic=True)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=torch.quint8, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=torch.quint4x2, qscheme=torch.per_channel_affine_float_qparams, ch_axis=0
)
_NARROW: dict[str, Any] = {"dtype": torch.qint8, "quant_min": -127, "quant_max": 127, "eps": 2**-12}
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    qscheme=torch.per_tensor_symmetric, **_NARROW
)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    qscheme=torch.per_channel_symmetric, **_NARROW
)

if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = sorted(
        [
            *(
                name
                for name in vars()
                if name.endswith(("_observer", "_observer_4bit", "neg_127_to_127"))
            ),
            *(kind.__name__ for kind in (*_BY_NAME.values(), ObserverBase, PlaceholderObserver)),
            "Observer",
            "get_observer_state_dict",
            "load_observer_state_dict",
        ]
    )
