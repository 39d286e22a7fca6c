"""QConfig as torch.quantization documents it: two makers of modules, and the named defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import nn

from onnxq import qconfig as own
from onnxq.errors import QConfigError
from onnxq.pytorch.quantization.fake_quantize import of_fake_spec
from onnxq.pytorch.quantization.observer import (
    NoopObserver,
    default_dynamic_quant_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
    of_spec,
)

if TYPE_CHECKING:
    from onnxq.pytorch.quantization.with_args import WithArgs

FBGEMM = "fbgemm"


class _Makers(NamedTuple):
    activation: Any
    weight: Any


class QConfig(_Makers):
    """How a layer's result and its weights are quantized.

    Attributes:
        activation: observer or FakeQuantize class, or what its with_args gave.
        weight: the same for weights.

    Raises:
        QConfigError: an instance of an observer, which would be shared by all layers.
    """

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> Self:
        """The two makers, checked."""
        for name, part in (("activation", activation), ("weight", weight)):
            if isinstance(part, nn.Module):
                raise QConfigError(
                    f"QConfig received observer instance, please pass observer class instead: "
                    f"{name} is a {type(part).__name__}, which holds one tensor's statistics; use "
                    f"{type(part).__name__}.with_args(...)."
                )
        return super().__new__(cls, activation, weight)


class QConfigDynamic(QConfig):
    """How weights are quantized where activations are when the model runs.

    Attributes:
        activation: says so; the default is a placeholder.
        weight: observer class, or what its with_args gave.
    """

    __slots__ = ()

    def __new__(
        cls,
        activation: Any = default_dynamic_quant_observer,
        weight: Any = default_weight_observer,
    ) -> Self:
        """The makers, checked."""
        return super().__new__(cls, activation, weight)


def _of(qconfig: own.QConfig) -> QConfig:
    """The QConfig of this namespace that onnxq's stands for."""
    return QConfig(_maker(qconfig.activation), _maker(qconfig.weight))


def _maker(part: own.Part) -> WithArgs:
    return of_fake_spec(part) if isinstance(part, own.FakeQuantSpec) else of_spec(part)


default_qconfig = QConfig(default_observer, default_weight_observer)
default_debug_qconfig = _of(own.default_debug_qconfig)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_qconfig = QConfigDynamic()
float16_dynamic_qconfig = QConfigDynamic(
    activation=NoopObserver, weight=NoopObserver.with_args(dtype=torch.float16)
)
per_channel_dynamic_qconfig = QConfigDynamic(weight=default_per_channel_weight_observer)
default_qat_qconfig = _of(own.default_qat_qconfig)


def get_default_qconfig(backend: str = FBGEMM) -> QConfig:
    """The QConfig of a backend for post-training quantization, as documented.

    Raises:
        QConfigError: the backend is none of fbgemm, x86, qnnpack, onednn.
    """
    return _of(own.get_default_qconfig(backend))


def get_default_qat_qconfig(backend: str = FBGEMM) -> QConfig:
    """The QConfig of a backend for quantization-aware training, as documented.

    Raises:
        QConfigError: the backend is none of fbgemm, x86, qnnpack, onednn.
    """
    return _of(own.get_default_qat_qconfig(backend))
