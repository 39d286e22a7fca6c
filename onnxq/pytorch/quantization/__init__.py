"""torch.quantization's documented names in one namespace, with their documented meaning.

    import onnxq.pytorch.quantization as tq     # in place of: import torch.quantization as tq

    model.qconfig = tq.get_default_qconfig("fbgemm")
    prepared = tq.prepare(model.eval())
    prepared(batch)
    quantized = tq.convert(prepared)
    onnxq.export(quantized, batch, "model.onnx")

Names that have no counterpart can be imported; using one says what to use in its place.

Modules go in and modules come out. onnxq.pytorch has the same verbs for what torch does not
document: example inputs in place of stubs, and quantize_dynamic to ONNX in one step.
"""

from typing import TYPE_CHECKING

from onnxq.pytorch.eager.add_observer import (
    add_observer_,
    add_quant_dequant,
    get_observer_dict,
)
from onnxq.pytorch.eager.convert import (
    swap_module,
)
from onnxq.pytorch.eager.prepare import (
    prepare_qat,
)
from onnxq.pytorch.eager.propagation import (
    propagate_qconfig_,
)
from onnxq.pytorch.modules.refused_names import refusing
from onnxq.pytorch.modules.stubs import (
    DeQuantStub,
    QuantStub,
    QuantWrapper,
)
from onnxq.pytorch.quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_histogram_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from onnxq.pytorch.quantization.fuse_modules import (
    fuse_known_modules,
    fuse_modules,
    fuse_modules_qat,
)
from onnxq.pytorch.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    Observer,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_histogram_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_weight_observer,
    get_observer_state_dict,
    load_observer_state_dict,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)
from onnxq.pytorch.quantization.qconfig import (
    QConfig,
    QConfigDynamic,
    default_activation_only_qconfig,
    default_debug_qconfig,
    default_dynamic_qconfig,
    default_embedding_qat_qconfig,
    default_embedding_qat_qconfig_4bit,
    default_per_channel_qconfig,
    default_per_channel_symmetric_qnnpack_qat_qconfig,
    default_per_channel_symmetric_qnnpack_qconfig,
    default_qat_qconfig,
    default_qat_qconfig_v2,
    default_qconfig,
    default_quint8_weight_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    default_weight_only_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
    get_default_qat_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
    qconfig_equals,
)
from onnxq.pytorch.quantization.quantization_mappings import (
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
)
from onnxq.pytorch.quantization.quantize import (
    default_eval_fn,
    quantize,
    quantize_qat,
)
from onnxq.pytorch.quantization.quantize_jit import (
    quantize_dynamic_jit,
    quantize_jit,
)
from onnxq.pytorch.quantization.refused import REFUSED
from onnxq.pytorch.quantization.workflow import (
    convert,
    prepare,
    quantize_dynamic,
)

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, REFUSED)

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
    "FakeQuantizeBase",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "Observer",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QConfigDynamic",
    "QuantStub",
    "QuantWrapper",
    "RecordingObserver",
    "add_observer_",
    "add_quant_dequant",
    "convert",
    "default_activation_only_qconfig",
    "default_debug_observer",
    "default_debug_qconfig",
    "default_dynamic_qconfig",
    "default_dynamic_quant_observer",
    "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit",
    "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit",
    "default_eval_fn",
    "default_fake_quant",
    "default_float_qparams_observer",
    "default_float_qparams_observer_4bit",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_fake_quant",
    "default_histogram_observer",
    "default_observer",
    "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig",
    "default_per_channel_weight_fake_quant",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_qat_qconfig",
    "default_qat_qconfig_v2",
    "default_qconfig",
    "default_quint8_weight_qconfig",
    "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig",
    "default_weight_fake_quant",
    "default_weight_observer",
    "default_weight_only_qconfig",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "float16_dynamic_qconfig",
    "float_qparams_weight_only_qconfig",
    "float_qparams_weight_only_qconfig_4bit",
    "fuse_known_modules",
    "fuse_modules",
    "fuse_modules_qat",
    "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_observer_dict",
    "get_observer_state_dict",
    "load_observer_state_dict",
    "per_channel_dynamic_qconfig",
    "per_channel_weight_observer_range_neg_127_to_127",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "qconfig_equals",
    "quantize",
    "quantize_dynamic",
    "quantize_dynamic_jit",
    "quantize_jit",
    "quantize_qat",
    "swap_module",
    "weight_observer_range_neg_127_to_127",
]
