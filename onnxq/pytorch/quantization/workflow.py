"""Eager quantization as torch.quantization documents it: module in, module out.

prepared = prepare(model)          # observers
for x in data: prepared(x)
quantized = convert(prepared)      # a module; onnxq.export writes it as ONNX

quantized = quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
"""

import copy
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from onnxq.errors import ModelError, QConfigError, kind_of, listed
from onnxq.pytorch.eager import convert as eager
from onnxq.pytorch.eager.add_observer import add_observer_, add_quant_dequant, get_observer_dict
from onnxq.pytorch.eager.convert import default_eval_fn, quantize, quantize_qat, swap_module
from onnxq.pytorch.eager.fuse_modules import fuse_known_modules, fuse_modules, fuse_modules_qat
from onnxq.pytorch.eager.jit import quantize_dynamic_jit, quantize_jit
from onnxq.pytorch.eager.prepare import observed, prepare_qat
from onnxq.pytorch.eager.propagation import propagate_qconfig_
from onnxq.pytorch.modules.stubs import DeQuantStub, QuantStub, QuantWrapper
from onnxq.pytorch.nn.quantized.observed import bind_input
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.quantization.qconfig import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    float_qparams_weight_only_qconfig_4bit,
)
from onnxq.pytorch.quantization.quantization_mappings import (
    get_default_dynamic_quant_module_mappings,
)
from onnxq.pytorch.train.conversion import check_prepared
from onnxq.pytorch.train.sources import reads_integers
from onnxq.qparams import QParams

__all__ = [
    "DeQuantStub",
    "QuantStub",
    "QuantWrapper",
    "add_observer_",
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "fuse_known_modules",
    "fuse_modules",
    "fuse_modules_qat",
    "get_observer_dict",
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

_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)
_OF_ROWS = {
    torch.quint8: float_qparams_weight_only_qconfig,
    torch.quint4x2: float_qparams_weight_only_qconfig_4bit,
}
_OF_DTYPE = {
    torch.qint8: default_dynamic_qconfig,
    torch.float16: float16_dynamic_qconfig,
    **_OF_ROWS,
}


def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Collection[type[nn.Module]] | None = None,
    observer_non_leaf_module_list: Collection[type[nn.Module]] | None = None,
    prepare_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model with observers; run data through it, then `convert` it.

    A model in train mode is prepared as it is, as documented, with a warning: what dropout and
    batch norm do in that mode is what the observers see.

    Args:
        model: with `qconfig` on it or on modules in it, and stubs.
        inplace: changes the model itself.
        allow_list: types that are observed; None: those that have a quantized form.
        observer_non_leaf_module_list: types with modules in them whose result is observed.
        prepare_custom_config_dict: as that of onnxq.pytorch.prepare.
    Raises:
        OnnxqError: as onnxq.pytorch.prepare, but for the mode.
    """
    if model.training:
        warnings.warn(
            "prepare: the model is in train mode, in which dropout and batch norm change what is "
            "observed. Call model.eval() first.",
            stacklevel=2,
        )
    return observed(
        model, inplace, allow_list, observer_non_leaf_module_list, prepare_custom_config_dict
    )


def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: Collection[type[nn.Module] | str] | Mapping[Any, object] | None = None,
    dtype: torch.dtype = torch.qint8,
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """The model with layers whose weights are int8 and whose activations are quantized as it runs.

    No data is needed, and no example input. `onnxq.export` writes the result as ONNX;
    `onnxq.pytorch.quantize_dynamic` goes to ONNX in one step, and quantizes more kinds of layers.

    A model that has nothing of what is named comes back in float, as documented, with a warning.

    Args:
        model: float; it is put into eval mode.
        qconfig_spec: types and names of submodules; or {type or name: QConfigDynamic, None for
            float}; None: every type that has a dynamic layer, but convolutions.
        dtype: of the weights, where qconfig_spec says no more: torch.qint8 or torch.float16; for
            embeddings torch.quint8 or torch.quint4x2.
        mapping: {float type: dynamic type with from_float}; None: those of nn.quantized.dynamic.
        inplace: changes the model itself.
    Raises:
        QConfigError: another dtype; a name that the model does not have.
        OnnxqError: as onnxq.pytorch.convert.
    """
    entries = _entries(qconfig_spec, dtype)
    root = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(root.eval(), entries)
    if not any(getattr(part, "qconfig", None) is not None for part in root.modules()):
        names = ", ".join(key if isinstance(key, str) else key.__name__ for key in entries)
        warnings.warn(
            f"quantize_dynamic: {type(root).__name__} has none of {names}: it stays in float. Name "
            "types or submodules that it has.",
            stacklevel=2,
        )
        return root
    return eager.convert(root, mapping, inplace=True)


def convert(
    module: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    convert_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The module with quantized modules in place of those that were observed or trained.

    One that has seen no data at all is converted with scales of 1, as documented, with a warning:
    so that a state_dict of a converted model can be loaded into it. One in which nothing was
    prepared comes back as it is, with a warning.

    Args:
        module: of `prepare` or `prepare_qat`.
        mapping: as that of onnxq.pytorch.convert.
        inplace: changes the module itself.
        remove_qconfig: the result has no `qconfig` attributes.
        convert_custom_config_dict: as that of onnxq.pytorch.convert.
    Raises:
        OnnxqError: as onnxq.pytorch.convert; where some data was seen, a part without is refused.
    """
    try:
        check_prepared(module)
    except ModelError as error:
        warnings.warn(str(error), stacklevel=2)
        return module if inplace else copy.deepcopy(module)
    own = module if inplace else copy.deepcopy(module)
    activations = [fake for fake in _fakes(own) if not fake.is_per_channel]
    if activations and not any(fake.has_observed for fake in activations):
        warnings.warn(
            "convert: the model has seen no data, so that every scale is 1. Run representative "
            "data through the prepared model first, or load the state_dict of a converted one.",
            stacklevel=2,
        )
        _assume_scales_of_one(own)
    return eager.convert(own, mapping, True, remove_qconfig, convert_custom_config_dict)


def _fakes(module: nn.Module) -> list[FakeQuantize]:
    return [part for part in module.modules() if isinstance(part, FakeQuantize)]


def _assume_scales_of_one(module: nn.Module) -> None:
    """Gives what is observed the scale 1 and the zero point 0, and layers such an input."""
    weights = {getattr(part, "weight_fake_quant", None) for part in module.modules()}
    source: FakeQuantize | None = None
    for fake in _fakes(module):
        if fake in weights:
            continue  # a weight is observed when it is converted
        one = torch.ones_like(fake.scale).cpu().numpy()
        zero = torch.zeros_like(fake.zero_point).cpu().numpy()
        source = fake.fix(QParams(one, zero, fake.dtype, fake.granularity))
    for part in list(module.modules()):
        if reads_integers(part):
            bind_input(part, source)


def _entries(spec: object, dtype: torch.dtype) -> Mapping[Any, object]:
    if hasattr(spec, "items"):
        return spec  # type: ignore[return-value]  # {type or name: entry}; propagation checks it
    if dtype not in _OF_DTYPE:
        raise QConfigError(
            f"quantize_dynamic: dtype {dtype}; wanted {' or '.join(map(str, _OF_DTYPE))}, or a "
            "QConfigDynamic for each type in qconfig_spec."
        )
    usual = _LOOKUPS if dtype in _OF_ROWS else tuple(get_default_dynamic_quant_module_mappings())
    keys = usual if spec is None else spec
    if not isinstance(keys, set | frozenset | list | tuple | dict):
        raise QConfigError(
            f"qconfig_spec is {kind_of(spec)}; wanted None, a set such as {{nn.LSTM, nn.Linear}}, "
            "or a dict {module type or name: QConfigDynamic}."
        )
    others = [key for key in keys if isinstance(key, type) and not issubclass(key, _LOOKUPS)]
    if dtype in _OF_ROWS and others:
        raise QConfigError(
            f"quantize_dynamic: {dtype} is for embeddings, not for "
            f"{listed([key.__name__ for key in others])}; wanted torch.qint8 or torch.float16."
        )
    return dict.fromkeys(keys, _OF_DTYPE[dtype])
