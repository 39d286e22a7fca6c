"""Call forms: every call that torch's signature takes, onnxq's takes with the same meaning.

Parameters have torch's names, order and defaults. onnxq may have further optional ones: behind
torch's where they are positional, or by keyword. Parameters that torch has got since the documents
are left out (NEWER), and forms that have changed since are typed here as documented (FORMS).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from onnxq.dtypes import QDType
from onnxq.errors import OnnxqError
from onnxq.pytorch.numerics.integer_types import qdtype_of
from scripts._documents.check import COVERAGE, DESIGN, GUIDE, NVIDIA, Check, Difference
from scripts._documents.names import NAMESPACES, place

NEWER = {
    "antialias",
    "is_dynamic",
    "is_reference",
    "kwargs",
    "memory_format",
    "recompute_scale_factor",
    "use_precomputed_fake_quant",
    "version",
}
"""Parameters that torch has got since the documents' releases (1.3 to 1.8)."""

# --- Names whose form is torch's own, as this torch has it.

SIGNATURES = {
    "torch.quantization": (
        "add_quant_dequant convert prepare prepare_qat propagate_qconfig_ quantize "
        "quantize_dynamic quantize_qat swap_module default_eval_fn fuse_modules quantize_jit "
        "quantize_dynamic_jit QConfig QConfigDynamic QuantStub DeQuantStub QuantWrapper "
        "ObserverBase MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver HistogramObserver RecordingObserver NoopObserver "
        "FakeQuantize"
    ),
    "torch.nn.quantized": (
        "Quantize DeQuantize FloatFunctional QFunctional Conv1d Conv2d Conv3d Linear MaxPool2d "
        "ReLU6 ELU Hardswish BatchNorm2d BatchNorm3d LayerNorm GroupNorm InstanceNorm1d "
        "InstanceNorm2d InstanceNorm3d"
    ),
    "torch.nn.intrinsic.qat": "ConvBn2d ConvBnReLU2d ConvReLU2d LinearReLU",
    "torch.nn.intrinsic.quantized": "ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU",
    "torch.nn.qat": "Conv2d Linear",
    "torch.nn.quantized.dynamic": "Linear RNNCell",
    "torch.nn.quantized.functional": (
        "adaptive_avg_pool2d avg_pool2d avg_pool3d conv1d conv2d conv3d interpolate linear "
        "max_pool2d elu hardsigmoid hardswish hardtanh upsample upsample_bilinear upsample_nearest"
    ),
    "torch.nn.quantized.FloatFunctional": "add add_scalar mul mul_scalar cat add_relu",
    "torch.nn.quantized.QFunctional": "add add_scalar mul mul_scalar cat add_relu",
}

# --- Forms as documented, where torch's function shows none or another one today.

_AXES = "*dims"
FORMS = {
    (COVERAGE, "torch"): {
        "quantize_per_tensor": "input, scale, zero_point, dtype",
        "quantize_per_channel": "input, scales, zero_points, axis, dtype",
    },
    (COVERAGE, "torch.Tensor"): {
        "as_strided": "size, stride, storage_offset=None",
        "flatten": "start_dim=0, end_dim=-1",
        "select": "dim, index",
        "ne": "other",
        "eq": "other",
        "ge": "other",
        "le": "other",
        "gt": "other",
        "lt": "other",
        "copy_": "src",
        "clone": "",
        "dequantize": "",
        "equal": "other",
        "int_repr": "",
        "max": "dim=None, keepdim=False",
        "mean": "dim=None, keepdim=False, out=None",
        "min": "dim=None, keepdim=False",
        "q_scale": "",
        "q_zero_point": "",
        "q_per_channel_scales": "",
        "q_per_channel_zero_points": "",
        "q_per_channel_axis": "",
        "sort": "dim=-1, descending=False",
        "topk": "k, dim=-1, largest=True, sorted=True",
    },
    (GUIDE, "torch.quantization"): {
        "get_default_qconfig": "backend='fbgemm'",
        "get_default_qat_qconfig": "backend='fbgemm'",
        "add_observer_": "module, qconfig_propagation_list=None, non_leaf_module_list=None, "
        "device=None, custom_module_class_mapping=None",
        "get_observer_dict": "mod, target_dict, prefix=''",
    },
    (GUIDE, "torch.nn.quantized.functional"): {"relu": "input, inplace=False"},
    (COVERAGE, "torch.nn.quantized.dynamic"): {
        "LSTM": "input_size, hidden_size, num_layers=1, bias=True, batch_first=False, "
        "dropout=0.0, bidirectional=False, dtype=torch.qint8",
        "LSTMCell": "input_size, hidden_size, bias=True, dtype=torch.qint8",
        "GRUCell": "input_size, hidden_size, bias=True, dtype=torch.qint8",
    },
    (DESIGN, "torch"): {
        "quantize_linear": "x, scale, zero_point, dtype",
        "_empty_affine_quantized": "size, scale, zero_point, dtype",
    },
    (DESIGN, "torch.Tensor"): {
        "argmin": "dim=None, keepdim=False",
        "argmax": "dim=None, keepdim=False",
        "argsort": "dim=-1, descending=False",
        "permute": _AXES,
        "contiguous": "",
    },
    (NVIDIA, "tensor_quant"): {
        "ScaledQuantDescriptor": "num_bits=8, name=None, **kwargs",
        "TensorQuantFunction.forward": "ctx, inputs, amax, num_bits=8, unsigned=False, "
        "narrow_range=True",
        "TensorQuantFunction.backward": "ctx, *grad_outputs",
        "FakeTensorQuantFunction.forward": "ctx, inputs, amax, num_bits=8, unsigned=False, "
        "narrow_range=True",
    },
    (NVIDIA, "ScaledQuantDescriptor"): {"dict": "", "to_yaml": "", "from_yaml": "yaml_str"},
}


def checks() -> Iterator[Check]:
    """A check for each documented form."""
    for namespace, names in SIGNATURES.items():
        for name in names.split():
            yield Check(GUIDE, namespace, f"{name}(...)", partial(as_torch, namespace, name))
    for (document, namespace), forms in FORMS.items():
        for name, text in forms.items():
            ask = partial(as_typed, namespace, name, text)
            yield Check(document, namespace, f"{name}(...)", ask)


def as_torch(namespace: str, name: str) -> None:
    """The form is that of this torch."""
    ours, torchs = NAMESPACES[namespace]
    wanted = parameters(getattr(place(torchs), name))
    compare(parameters(getattr(place(ours), name)), wanted)


def as_typed(namespace: str, name: str, text: str) -> None:
    """The form is the one that is written here."""
    found: Any = place(NAMESPACES[namespace][0])
    for part in name.split("."):
        found = getattr(found, part)
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def typed({text}): ...", scope)  # the texts of this file
    compare(parameters(found), parameters(scope["typed"]))


def parameters(function: Any) -> list[inspect.Parameter]:
    """The parameters of a call, without `self`."""
    found = list(inspect.signature(function).parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def compare(ours: list[inspect.Parameter], wanted: list[inspect.Parameter]) -> None:
    """Each wanted parameter is there, at its place, with its default."""
    by_name = {p.name: (place, p) for place, p in enumerate(ours)}
    wanted = [p for p in wanted if p.name not in NEWER]
    for at, parameter in enumerate(wanted):
        if parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
            if not {p.kind for p in ours[at:]} & {parameter.kind, parameter.KEYWORD_ONLY}:
                raise Difference(f"takes no {parameter}")
            continue
        place, own = by_name.get(parameter.name, (-1, None))
        if own is None:
            raise Difference(f"no parameter {parameter.name}")
        if parameter.kind is not parameter.KEYWORD_ONLY and place != at:
            raise Difference(f"{parameter.name} is at place {place + 1}, wanted {at + 1}")
        if parameter.default is not parameter.empty and not alike(own.default, parameter.default):
            raise Difference(f"{parameter.name}={own.default!r}, wanted {parameter.default!r}")
    names = {p.name for p in wanted}
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for own in ours:
        if own.name not in names and own.kind in plain and own.default is own.empty:
            raise Difference(f"asks for {own.name}, too")


def alike(ours: Any, wanted: Any) -> bool:
    """Whether two defaults mean the same: equal, or one type of integers, class or function."""
    if isinstance(wanted, torch.dtype) and isinstance(ours, torch.dtype | QDType):
        try:
            return qdtype_of(ours) == qdtype_of(wanted)
        except OnnxqError:
            return bool(ours == wanted)
    if inspect.isclass(wanted) or inspect.isfunction(wanted):
        return bool(getattr(ours, "__name__", None) == wanted.__name__)
    return bool(ours == wanted)
