"""FakeQuantize with the observers of this namespace, and the documented makers of it."""

from typing import TYPE_CHECKING, Any

import torch

from onnxq import qconfig as own
from onnxq.pytorch.modules.torch_qconfig import own_part
from onnxq.pytorch.numerics import fake_quantize as numerics
from onnxq.pytorch.numerics.fake_quantize import disable_fake_quant as disable_fake_quant
from onnxq.pytorch.numerics.fake_quantize import disable_observer as disable_observer
from onnxq.pytorch.numerics.fake_quantize import enable_fake_quant as enable_fake_quant
from onnxq.pytorch.numerics.fake_quantize import enable_observer as enable_observer
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.quantization.observer import (
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    of_spec,
)
from onnxq.pytorch.quantization.uniform_observer import WithArgs
from onnxq.qconfig import FakeQuantSpec


class _AnyFakeQuantize(type(numerics.FakeQuantize)):  # type: ignore[misc]  # nn.Module's metaclass
    """Lets isinstance(m, FakeQuantize) hold for those that `prepare` made."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, numerics.FakeQuantize)


class FakeQuantize(numerics.FakeQuantize, metaclass=_AnyFakeQuantize):
    """onnxq.pytorch.FakeQuantize, made of an observer of this namespace.

    Args:
        observer: class, or what its with_args gave.
        quant_min: smallest integer; None: the observer's.
        quant_max: largest integer.
        observer_kwargs: further arguments of the observer.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        **observer_kwargs: Any,
    ) -> None:
        part = own_part(observer, "FakeQuantize.observer")
        spec = numerics.FakeQuantize.with_args(part, quant_min, quant_max, **observer_kwargs)
        Observing.__init__(self, spec.observer)  # with_args is another one here
        self.spec = spec

    @classmethod
    def with_args(cls, **kwargs: Any) -> WithArgs:  # type: ignore[override]  # here it is a maker
        """The class and its arguments, as a QConfig holds them."""
        return WithArgs(cls, kwargs)


FakeQuantizeBase = numerics.FakeQuantize
"""The class of every FakeQuantize, whoever made it: for isinstance."""


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize that follows moving averages, which here is always done in one step.

    Args:
        observer: of moving averages.
        quant_min: smallest integer.
        quant_max: largest integer.
        observer_kwargs: further arguments of the observer.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)


def of_fake_spec(spec: FakeQuantSpec) -> WithArgs:
    """The maker of a FakeQuantize that rounds as onnxq's spec says."""
    maker = of_spec(spec.observer)
    return FakeQuantize.with_args(observer=maker.func, **maker.keywords)


default_fake_quant = of_fake_spec(own.default_fake_quant)
default_weight_fake_quant = of_fake_spec(own.default_weight_fake_quant)
default_per_channel_weight_fake_quant = of_fake_spec(own.default_per_channel_weight_fake_quant)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=of_spec(own.get_default_qconfig("fbgemm").activation_observer).func,
    quant_min=0,
    quant_max=255,
    reduce_range=True,
)

_BYTE: dict[str, Any] = {"quant_min": -128, "quant_max": 127, "dtype": torch.qint8}
_NARROW: dict[str, Any] = {**_BYTE, "quant_min": -127, "eps": 2**-12}
_TENSOR: dict[str, Any] = {
    "observer": MovingAverageMinMaxObserver,
    "qscheme": torch.per_tensor_symmetric,
}
_CHANNELS: dict[str, Any] = {
    "observer": MovingAveragePerChannelMinMaxObserver,
    "qscheme": torch.per_channel_symmetric,
}
_TABLE: dict[str, Any] = {
    "observer": MovingAveragePerChannelMinMaxObserver,
    "qscheme": torch.per_channel_affine_float_qparams,
    "ch_axis": 0,
}
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_TENSOR, **_BYTE)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **_CHANNELS, **_BYTE
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_TENSOR, **_NARROW
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_CHANNELS, **_NARROW
)
default_embedding_fake_quant = FakeQuantize.with_args(
    **_TABLE, quant_min=0, quant_max=255, dtype=torch.quint8
)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(**_TABLE, dtype=torch.quint4x2)

_SWITCHES = ("disable_fake_quant", "disable_observer", "enable_fake_quant", "enable_observer")
if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = sorted(
        [
            *_SWITCHES,
            "FakeQuantize",
            "FakeQuantizeBase",
            "FusedMovingAvgObsFakeQuantize",
            *(name for name in vars() if name.startswith(("default_", "fused_"))),
        ]
    )
