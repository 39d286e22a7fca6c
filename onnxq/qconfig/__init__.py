"""QConfig and QConfigMapping say what to quantize and how; the documented defaults.

mapping = default_qconfig_mapping().set_op_type("Softmax", None).set_node("/head/*", None)
mapping = QConfigMapping.from_yaml(Path("qconfig.yaml"))
"""

from onnxq.qconfig._defaults import (
    default_debug_qconfig,
    default_dynamic_qconfig,
    default_fake_quant,
    default_per_channel_qconfig,
    default_per_channel_weight_fake_quant,
    default_qat_qconfig,
    default_qconfig,
    default_weight_fake_quant,
    float16_dynamic_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
    groupwise_4bit_qat_qconfig,
    learned_4bit_qat_qconfig,
    learned_qat_qconfig,
    onnxq_default_dynamic_qconfig,
    onnxq_default_qat_qconfig,
    onnxq_default_qconfig,
    per_channel_dynamic_qconfig,
)
from onnxq.qconfig._mapping import (
    NOT_SET,
    NotSet,
    QConfigMapping,
    default_choice,
    default_qconfig_mapping,
)
from onnxq.qconfig._values import (
    STATIC_PRECISIONS,
    Choice,
    Entry,
    FakeQuantSpec,
    Part,
    QConfig,
    QConfigDynamic,
    ScaleRule,
)
from onnxq.qconfig.quantized_input import Pixels, QuantizedInput

__all__ = [
    "NOT_SET",
    "STATIC_PRECISIONS",
    "Choice",
    "Entry",
    "FakeQuantSpec",
    "NotSet",
    "Part",
    "Pixels",
    "QConfig",
    "QConfigDynamic",
    "QConfigMapping",
    "QuantizedInput",
    "ScaleRule",
    "default_choice",
    "default_debug_qconfig",
    "default_dynamic_qconfig",
    "default_fake_quant",
    "default_per_channel_qconfig",
    "default_per_channel_weight_fake_quant",
    "default_qat_qconfig",
    "default_qconfig",
    "default_qconfig_mapping",
    "default_weight_fake_quant",
    "float16_dynamic_qconfig",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "groupwise_4bit_qat_qconfig",
    "learned_4bit_qat_qconfig",
    "learned_qat_qconfig",
    "onnxq_default_dynamic_qconfig",
    "onnxq_default_qat_qconfig",
    "onnxq_default_qconfig",
    "per_channel_dynamic_qconfig",
]
