"""FakeQuantize with the observers of this namespace, and the documented makers of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxq import qconfig as own
from onnxq.pytorch.modules.torch_qconfig import own_part
from onnxq.pytorch.numerics import fake_quantize as numerics
from onnxq.pytorch.numerics.fake_quantize import (
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from onnxq.pytorch.numerics.observing import Observing
from onnxq.pytorch.quantization.observer import MovingAverageMinMaxObserver, of_spec
from onnxq.pytorch.quantization.with_args import WithArgs

if TYPE_CHECKING:
    from onnxq.qconfig import FakeQuantSpec

__all__ = [
    "FakeQuantize",
    "default_fake_quant",
    "default_histogram_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_weight_fake_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "of_fake_spec",
]


class _AnyFakeQuantize(type(numerics.FakeQuantize)):  # type: ignore[misc]  # nn.Module's metaclass
    """Lets isinstance(m, FakeQuantize) hold for those that `prepare` made."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, numerics.FakeQuantize)


class FakeQuantize(numerics.FakeQuantize, metaclass=_AnyFakeQuantize):
    """onnxq.pytorch.FakeQuantize, made of an observer of this namespace.

    Args:
        observer: class, or what its with_args gave.
        quant_min: smallest code; None: the observer's.
        quant_max: largest code.
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

    @property
    def activation_post_process(self) -> FakeQuantize:
        """The observer, documented under this name: it watches, and knows the range of codes."""
        return self

    @classmethod
    def with_args(cls, **kwargs: Any) -> WithArgs:  # type: ignore[override]  # here it is a maker
        """The class and its arguments, as a QConfig holds them."""
        return WithArgs(cls, kwargs)


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
