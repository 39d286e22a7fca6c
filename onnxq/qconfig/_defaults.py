"""The documented configurations under their documented names, and onnxq's own.

Equal to torch.ao.quantization's, observer by observer. Where torch has two versions of a QAT
configuration these are the documented ones with the plain FakeQuantize (version 0): the fused one
trains with other scales than it converts with.
"""

from collections.abc import Mapping
from dataclasses import replace

from onnxq.dtypes import qint8, quint8
from onnxq.errors import QConfigError, nearest
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    RecordingObserver,
    StepSizeObserver,
    default_observer,
    default_weight_observer,
)
from onnxq.observers.value_range import FINE_EPS
from onnxq.operator import Precision
from onnxq.qconfig._values import FakeQuantSpec, QConfig, QConfigDynamic, ScaleRule
from onnxq.qparams import (
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)

_weight_per_channel = PerChannelMinMaxObserver.with_args(dtype=qint8, qscheme=per_channel_symmetric)
_weight_per_tensor = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)

default_fake_quant = FakeQuantSpec(
    MovingAverageMinMaxObserver.with_args(
        quant_min=0, quant_max=255, dtype=quint8, qscheme=per_tensor_affine, reduce_range=True
    )
)
default_weight_fake_quant = FakeQuantSpec(
    MovingAverageMinMaxObserver.with_args(
        quant_min=-128, quant_max=127, dtype=qint8, qscheme=per_tensor_symmetric
    )
)
default_per_channel_weight_fake_quant = FakeQuantSpec(
    MovingAveragePerChannelMinMaxObserver.with_args(
        quant_min=-128, quant_max=127, dtype=qint8, qscheme=per_channel_symmetric, ch_axis=0
    )
)
_full_fake_quant = FakeQuantSpec(MovingAverageMinMaxObserver.with_args(quant_min=0, quant_max=255))

default_qconfig = QConfig(activation=default_observer, weight=default_weight_observer)
default_per_channel_qconfig = QConfig(activation=default_observer, weight=_weight_per_channel)
default_debug_qconfig = QConfig(
    activation=RecordingObserver.with_args(), weight=default_weight_observer
)
default_qat_qconfig = QConfig(activation=default_fake_quant, weight=default_weight_fake_quant)
default_dynamic_qconfig = QConfigDynamic(weight=default_weight_observer)
per_channel_dynamic_qconfig = QConfigDynamic(weight=_weight_per_channel)
float16_dynamic_qconfig = QConfigDynamic(weight=NoopObserver.with_args(dtype="float16"))

onnxq_default_qconfig = QConfig(
    HistogramObserver.with_args(eps=FINE_EPS), NarrowRangeObserver.with_args()
)
"""Least squared error for activations; weights on [-127, 127], which no CPU computes wrongly."""

onnxq_default_dynamic_qconfig = QConfigDynamic(NarrowRangeObserver.with_args())
"""A scale per output channel, integers in [-127, 127]; the precision is the planner's choice."""

onnxq_default_qat_qconfig = QConfig(
    _full_fake_quant,
    FakeQuantSpec(
        # absmax / 127, the scale of NarrowRangeObserver, but following weights that move
        MovingAveragePerChannelMinMaxObserver.with_args(
            quant_min=-127, quant_max=127, dtype=qint8, qscheme=per_channel_symmetric
        )
    ),
)

_learned_activation = FakeQuantSpec(_full_fake_quant.observer, ScaleRule.LEARNED)

learned_qat_qconfig = QConfig(
    _learned_activation,
    # at 8 bits absmax / 127 is nearer to the best scale than LSQ's start
    FakeQuantSpec(NarrowRangeObserver.with_args(), ScaleRule.LEARNED),
)
"""Learned scales (LSQ) of 8 bits; they start at the range of the first batch, or of the weight."""

learned_4bit_qat_qconfig = QConfig(
    _learned_activation, FakeQuantSpec(StepSizeObserver.with_args(quant_max=7), ScaleRule.LEARNED)
)
"""Weights of 4 bits in [-7, 7], stored as int8; their learned scales start as LSQ's paper says."""

groupwise_4bit_qat_qconfig = QConfigDynamic(
    FakeQuantSpec(
        MovingAveragePerChannelMinMaxObserver.with_args(dtype="uint4", qscheme=per_channel_affine)
    ),
    block_size=32,
)
"""Weights alone, 4 bits in groups of 32 inputs, trained for MatMulNBits; activations stay float.

A range per block follows the weight from the first step on; so many learned scales, of 32 weights
each, would have to find their way from where they start.
"""

_fbgemm = QConfig(HistogramObserver.with_args(reduce_range=True), _weight_per_channel)
_POST_TRAINING = {
    "": onnxq_default_qconfig,
    "fbgemm": _fbgemm,
    "x86": _fbgemm,
    "qnnpack": QConfig(HistogramObserver.with_args(reduce_range=False), _weight_per_tensor),
    "onednn": QConfig(HistogramObserver.with_args(reduce_range=False), _weight_per_channel),
}
_fbgemm_qat = QConfig(
    _full_fake_quant.with_args(reduce_range=True), default_per_channel_weight_fake_quant
)
_QAT = {
    "": onnxq_default_qat_qconfig,
    "fbgemm": _fbgemm_qat,
    "x86": _fbgemm_qat,
    "qnnpack": QConfig(_full_fake_quant, default_weight_fake_quant),
    "onednn": QConfig(_full_fake_quant, default_per_channel_weight_fake_quant),
}

NAMED: Mapping[str, QConfig | QConfigDynamic] = {
    "default": onnxq_default_qconfig,
    "default_qconfig": default_qconfig,
    "default_per_channel_qconfig": default_per_channel_qconfig,
    "default_debug_qconfig": default_debug_qconfig,
    "default_qat_qconfig": default_qat_qconfig,
    "learned_qat_qconfig": learned_qat_qconfig,
    "learned_4bit_qat_qconfig": learned_4bit_qat_qconfig,
    "groupwise_4bit_qat_qconfig": groupwise_4bit_qat_qconfig,
    "default_dynamic_qconfig": default_dynamic_qconfig,
    "per_channel_dynamic_qconfig": per_channel_dynamic_qconfig,
    "float16_dynamic_qconfig": float16_dynamic_qconfig,
    "int8": replace(onnxq_default_qconfig, precision=Precision.INT8),
    "int8_float_output": replace(onnxq_default_qconfig, precision=Precision.INT8_FLOAT_OUTPUT),
    "dynamic_int8": onnxq_default_dynamic_qconfig,
    "weight_only": replace(onnxq_default_dynamic_qconfig, precision=Precision.WEIGHT_ONLY),
    **{backend: qconfig for backend, qconfig in _POST_TRAINING.items() if backend},
}
"""Names that stand for a QConfig in YAML files and on the command line."""


def get_default_qconfig(backend: str = "") -> QConfig:
    """The QConfig for post-training quantization: a backend's as documented, "" for onnxq's own.

    Raises:
        QConfigError: the backend is none of fbgemm, x86, qnnpack, onednn and "".
    """
    return _of_backend(backend, _POST_TRAINING)


def get_default_qat_qconfig(backend: str = "") -> QConfig:
    """The QConfig for quantization-aware training: a backend's as documented, "" for onnxq's own.

    Raises:
        QConfigError: the backend is none of fbgemm, x86, qnnpack, onednn and "".
    """
    return _of_backend(backend, _QAT)


def _of_backend(backend: str, table: Mapping[str, QConfig]) -> QConfig:
    if backend not in table:
        known = [name for name in table if name]
        raise QConfigError(
            f"backend '{backend}' is not known; known: {', '.join(known)}, or '' for onnxq's own."
            f"{nearest(backend, known)}"
        )
    return table[backend]
