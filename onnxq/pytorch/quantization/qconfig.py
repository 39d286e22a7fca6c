"""QConfig as torch.quantization documents it: two makers of modules, and the named defaults."""

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import nn

from onnxq import qconfig as own
from onnxq.errors import QConfigError
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.pytorch.quantization import fake_quantize as fakes
from onnxq.pytorch.quantization import observer
from onnxq.pytorch.quantization.uniform_observer import WithArgs

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
        activation: Any = observer.default_dynamic_quant_observer,
        weight: Any = observer.default_weight_observer,
    ) -> Self:
        """The makers, checked."""
        return super().__new__(cls, activation, weight)


def _of(qconfig: own.QConfig) -> QConfig:
    """The QConfig of this namespace that onnxq's stands for."""
    return QConfig(_maker(qconfig.activation), _maker(qconfig.weight))


def _maker(part: own.Part) -> WithArgs:
    return (
        fakes.of_fake_spec(part) if isinstance(part, own.FakeQuantSpec) else observer.of_spec(part)
    )


default_qconfig = QConfig(observer.default_observer, observer.default_weight_observer)
default_debug_qconfig = _of(own.default_debug_qconfig)
default_per_channel_qconfig = QConfig(
    observer.default_observer, observer.default_per_channel_weight_observer
)
default_dynamic_qconfig = QConfigDynamic()
float16_dynamic_qconfig = QConfigDynamic(
    activation=observer.NoopObserver, weight=observer.NoopObserver.with_args(dtype=torch.float16)
)
per_channel_dynamic_qconfig = QConfigDynamic(weight=observer.default_per_channel_weight_observer)
default_qat_qconfig = _of(own.default_qat_qconfig)
default_qat_qconfig_v2 = QConfig(
    fakes.default_fused_act_fake_quant, fakes.default_fused_wt_fake_quant
)
default_weight_only_qconfig = QConfig(nn.Identity, fakes.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fakes.default_fake_quant, nn.Identity)
default_quint8_weight_qconfig = QConfig(observer.default_observer, observer.MinMaxObserver)

# embeddings: nothing of their input, which is integers, and a scale for each row
float_qparams_weight_only_qconfig = QConfig(
    observer.default_placeholder_observer, observer.default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    observer.default_placeholder_observer, observer.default_float_qparams_observer_4bit
)
default_embedding_qat_qconfig = QConfig(observer.NoopObserver, fakes.default_embedding_fake_quant)
default_embedding_qat_qconfig_4bit = QConfig(
    observer.NoopObserver, fakes.default_embedding_fake_quant_4bit
)

_SIGNED: dict[str, Any] = {"dtype": torch.qint8, "reduce_range": False, "eps": 2**-12}
_SIGNED_FAKE = fakes.default_fused_act_fake_quant.with_args(
    quant_min=-128, quant_max=127, **_SIGNED
)
default_symmetric_qnnpack_qconfig = QConfig(
    observer.HistogramObserver.with_args(**_SIGNED), observer.weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    observer.HistogramObserver.with_args(**_SIGNED),
    observer.per_channel_weight_observer_range_neg_127_to_127,
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    _SIGNED_FAKE, fakes.fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _SIGNED_FAKE, fakes.fused_per_channel_wt_fake_quant_range_neg_127_to_127
)


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


def qconfig_equals(q1: QConfig | None, q2: QConfig | None) -> bool:
    """Whether they make the same modules: of the same classes, with the same arguments.

    A QConfig of onnxq, which `prepare_qat` leaves on modules, equals the one that it was made of.

    Raises:
        QConfigError: one is no QConfig.
    """
    return q1 == q2 or own_entry(q1, "q1") == own_entry(q2, "q2")


if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = sorted(
        [
            *(name for name in vars() if "_qconfig" in name and not name.startswith("_")),
            "QConfig",
            "QConfigDynamic",
            "qconfig_equals",
        ]
    )
