"""torch.quantization's documented names in one namespace, with their documented meaning.

    import onnxq.pytorch.quantization as tq     # in place of: import torch.quantization as tq

    model.qconfig = tq.get_default_qconfig("fbgemm")
    prepared = tq.prepare(model.eval())
    prepared(batch)
    quantized = tq.convert(prepared)
    onnxq.export(quantized, batch, "model.onnx")

Modules go in and modules come out. onnxq.pytorch has the same verbs for what torch does not
document: example inputs in place of stubs, and quantize_dynamic to ONNX in one step.
"""

from onnxq.pytorch.eager.add_observer import add_observer_, add_quant_dequant, get_observer_dict
from onnxq.pytorch.eager.convert import swap_module
from onnxq.pytorch.eager.fuse_modules import fuse_known_modules, fuse_modules, fuse_modules_qat
from onnxq.pytorch.eager.jit import quantize_dynamic_jit, quantize_jit
from onnxq.pytorch.eager.prepare import prepare_qat
from onnxq.pytorch.eager.propagation import propagate_qconfig_
from onnxq.pytorch.eager.quantize import default_eval_fn, quantize, quantize_qat
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub, QuantWrapper
from onnxq.pytorch.quantization.fake_quantize import (
    FakeQuantize,
    default_fake_quant,
    default_histogram_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
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
    default_histogram_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from onnxq.pytorch.quantization.qconfig import (
    QConfig,
    QConfigDynamic,
    default_debug_qconfig,
    default_dynamic_qconfig,
    default_per_channel_qconfig,
    default_qat_qconfig,
    default_qconfig,
    float16_dynamic_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)
from onnxq.pytorch.quantization.quantization_mappings import (
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
)
from onnxq.pytorch.quantization.workflow import convert, prepare, quantize_dynamic

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
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
    "default_debug_observer",
    "default_debug_qconfig",
    "default_dynamic_qconfig",
    "default_dynamic_quant_observer",
    "default_eval_fn",
    "default_fake_quant",
    "default_histogram_fake_quant",
    "default_histogram_observer",
    "default_observer",
    "default_per_channel_qconfig",
    "default_per_channel_weight_fake_quant",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_qat_qconfig",
    "default_qconfig",
    "default_weight_fake_quant",
    "default_weight_observer",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "float16_dynamic_qconfig",
    "fuse_known_modules",
    "fuse_modules",
    "fuse_modules_qat",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_observer_dict",
    "per_channel_dynamic_qconfig",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_dynamic_jit",
    "quantize_jit",
    "quantize_qat",
    "swap_module",
]
