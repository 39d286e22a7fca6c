"""Documented names: each is there, is what torch's name is, and is not a name that only refuses."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from functools import partial

import torch

from onnxq.pytorch.modules.refused_names import RefusedName
from scripts._documents.check import COVERAGE, DESIGN, GUIDE, NVIDIA, Check
from scripts._documents.compare import holds, same

# --- Namespaces: the documents' word -> (onnxq's module, torch's, where this torch has one).

_QUANTIZATION = ("onnxq.pytorch.quantization", "torch.ao.quantization")
NAMESPACES = {
    "torch": ("onnxq.qtensor", "torch"),
    "torch arithmetic": ("onnxq.functional", "torch"),
    "torch.Tensor": ("onnxq.qtensor:QTensor", "torch:Tensor"),
    "torch.nn.functional": ("onnxq.functional", "torch.nn.functional"),
    "torch.nn.intrinsic": ("onnxq.pytorch.nn.intrinsic", "torch.ao.nn.intrinsic"),
    "torch.nn.intrinsic.qat": ("onnxq.pytorch.nn.intrinsic.qat", "torch.ao.nn.intrinsic.qat"),
    "torch.nn.intrinsic.quantized": (
        *("onnxq.pytorch.nn.intrinsic.quantized", "torch.ao.nn.intrinsic.quantized"),
    ),
    "torch.nn.qat": ("onnxq.pytorch.nn.qat", "torch.ao.nn.qat"),
    "torch.quantization": _QUANTIZATION,
    "torch.nn.quantized": ("onnxq.pytorch.nn.quantized", "torch.ao.nn.quantized"),
    "torch.nn.quantized.dynamic": (
        *("onnxq.pytorch.nn.quantized.dynamic", "torch.ao.nn.quantized.dynamic"),
    ),
    "torch.nn.quantized.functional": (
        *("onnxq.pytorch.nn.quantized.functional", "torch.ao.nn.quantized.functional"),
    ),
    "torch.nn.quantized.FloatFunctional": (
        "onnxq.pytorch.nn.quantized:FloatFunctional",
        "torch.ao.nn.quantized:FloatFunctional",
    ),
    "torch.nn.quantized.QFunctional": (
        *("onnxq.pytorch.nn.quantized:QFunctional", "torch.ao.nn.quantized:QFunctional"),
    ),
    "tensor_quant": ("onnxq.pytorch.tensor_quant", ""),
    "ScaledQuantDescriptor": ("onnxq.pytorch.tensor_quant:ScaledQuantDescriptor", ""),
}

# --- The names, document by document; a name stands where it is said first in this order.

NAMES = {
    (COVERAGE, "torch"): (
        "quantize_per_tensor quantize_per_channel per_tensor_affine per_channel_affine "
        "per_tensor_symmetric per_channel_symmetric quint8 qint8 qint32"
    ),
    (COVERAGE, "torch.Tensor"): (
        "view as_strided expand flatten select __getitem__ ne eq ge le gt lt copy_ clone "
        "dequantize equal int_repr max mean min q_scale q_zero_point q_per_channel_scales "
        "q_per_channel_zero_points q_per_channel_axis resize_ sort topk qscheme dtype"
    ),
    (COVERAGE, "torch.nn.functional"): (
        "relu relu_ elu max_pool2d adaptive_avg_pool2d avg_pool2d interpolate hardsigmoid "
        "hardswish hardtanh upsample upsample_bilinear upsample_nearest"
    ),
    (COVERAGE, "torch.nn.intrinsic"): (
        "ConvBn1d ConvBn2d ConvBnReLU1d ConvBnReLU2d ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU"
    ),
    (COVERAGE, "torch.nn.intrinsic.qat"): "ConvBn2d ConvBnReLU2d ConvReLU2d LinearReLU",
    (COVERAGE, "torch.nn.intrinsic.quantized"): "LinearReLU ConvReLU1d ConvReLU2d ConvReLU3d",
    (COVERAGE, "torch.nn.qat"): "Linear Conv2d",
    (COVERAGE, "torch.quantization"): (
        "add_observer_ add_quant_dequant convert get_observer_dict prepare prepare_qat "
        "propagate_qconfig_ quantize quantize_dynamic quantize_qat swap_module default_eval_fn "
        "fuse_modules quantize_jit quantize_dynamic_jit QConfig default_qconfig "
        "default_qat_qconfig default_dynamic_qconfig float16_dynamic_qconfig QConfigDynamic "
        "DeQuantStub QuantStub QuantWrapper default_observer default_weight_observer "
        "default_fake_quant default_weight_fake_quant Observer MinMaxObserver "
        "MovingAverageMinMaxObserver PerChannelMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver HistogramObserver RecordingObserver NoopObserver "
        "FakeQuantize"
    ),
    (COVERAGE, "torch.nn.quantized"): (
        "Quantize DeQuantize FloatFunctional QFunctional Conv1d Conv2d Conv3d Linear MaxPool2d "
        "ReLU6 ELU Hardswish BatchNorm2d BatchNorm3d LayerNorm GroupNorm InstanceNorm1d "
        "InstanceNorm2d InstanceNorm3d"
    ),
    (COVERAGE, "torch.nn.quantized.dynamic"): "Linear LSTM LSTMCell GRUCell RNNCell",
    (COVERAGE, "torch.nn.quantized.functional"): (
        "adaptive_avg_pool2d avg_pool2d avg_pool3d conv1d conv2d conv3d interpolate linear "
        "max_pool2d elu hardsigmoid hardswish hardtanh upsample upsample_bilinear upsample_nearest"
    ),
    (GUIDE, "torch.quantization"): "ObserverBase get_default_qconfig get_default_qat_qconfig",
    (GUIDE, "torch.nn.quantized"): "ReLU",
    (GUIDE, "torch.nn.quantized.functional"): "relu",
    (GUIDE, "torch.nn.quantized.FloatFunctional"): (
        "add add_scalar mul mul_scalar cat add_relu forward"
    ),
    (GUIDE, "torch.nn.quantized.QFunctional"): (
        "add add_scalar mul mul_scalar cat add_relu from_float"
    ),
    (DESIGN, "torch"): "quantize_linear _empty_affine_quantized",
    (DESIGN, "torch arithmetic"): "add cat",
    (DESIGN, "torch.Tensor"): ("__repr__ size argmin argmax argsort transpose permute contiguous"),
    (DESIGN, "torch.nn.intrinsic.quantized"): "Conv2dRelu LinearRelu",
    (DESIGN, "torch.nn.intrinsic.qat"): "ConvBnRelu2d ConvRelu2d LinearRelu",
    (DESIGN, "torch.nn.quantized.dynamic"): "RNN GRU Conv",
    (NVIDIA, "tensor_quant"): (
        "QuantDescriptor ScaledQuantDescriptor TensorQuantFunction FakeTensorQuantFunction "
        "tensor_quant fake_tensor_quant"
    ),
    (NVIDIA, "ScaledQuantDescriptor"): (
        "fake_quant name learn_amax scale_amax axis calib_method num_bits amax unsigned dict "
        "from_yaml to_yaml"
    ),
}


def place(path: str) -> object:
    """The module, or the class in it, of "module" or "module:Class"."""
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def checks() -> Iterator[Check]:
    """A check for each name."""
    for (document, namespace), names in NAMES.items():
        for name in names.split():
            yield Check(document, namespace, name, partial(there, namespace, name))


def there(namespace: str, name: str) -> None:
    """The name is there, is no refusal, and is a class, a function or a value as torch's is."""
    ours, torchs = NAMESPACES[namespace]
    found = getattr(place(ours), name)
    if isinstance(found, RefusedName):
        found()  # which says what to use
    theirs = getattr(place(torchs), name, None) if torchs else None
    if theirs is None or isinstance(theirs, torch.dtype | torch.qscheme):
        holds(found is not None, f"{name} is None")
        return
    for kind in (inspect.isclass, callable):
        same(bool(kind(found)), bool(kind(theirs)), f"{name}, whether {kind.__name__}")
