"""`convert` and `swap_module` with their documented arguments.

Usage: quantized = onnxq.pytorch.convert(prepared.eval())
"""

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError, kind_of, nearest
from onnxq.pytorch.arguments.bound_inputs import Inputs, bind
from onnxq.pytorch.arguments.forward import compute
from onnxq.pytorch.eager.prepare import prepare, prepare_qat
from onnxq.pytorch.eager.propagation import QUANTIZED_CLASSES, entries_of, propagate_qconfig_
from onnxq.pytorch.modules.places import hooked
from onnxq.pytorch.train.conversion import (
    DEFAULT_MAPPINGS,
    DYNAMIC_MAPPING,
    STATIC_MAPPING,
    ModuleMappings,
    check_prepared,
    convert_in_place,
    swapped,
)
from onnxq.qconfig import QConfig, QConfigDynamic, QConfigMapping

_INT8_MAX, _LEAST = 127, 2.0**-23  # of activations around 0, as torchao has them


def convert(
    module: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    convert_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The module with quantized modules in place of those that were observed or trained.

    A FakeQuantize anywhere becomes `nn.quantized.Requantize`, so that what stands between is
    computed in float, from integers to integers. Modules that no data reached stay in float, with a
    warning, and are refused where an export reaches them (see onnxq.pytorch.train.never_ran).
    Scales of sums are raised, by 1 in a million as a rule, to where every machine adds integers to
    the same (see onnxq.pytorch.train.agreeing_sums).

    Args:
        module: of `prepare` or `prepare_qat`, after it has seen data.
        mapping: {type: quantized type with from_float}; what it lacks stays as it is. None:
            STATIC_MAPPING of onnxq.pytorch.train.conversion, and DYNAMIC_MAPPING for modules whose
            qconfig is a QConfigDynamic.
        inplace: changes the module itself.
        remove_qconfig: the result has no `qconfig` attributes.
        convert_custom_config_dict: {"observed_to_quantized_custom_module_class": {observed type:
            quantized type with from_observed}}.
    Raises:
        ModelError: nothing in it was prepared.
        CalibrationError: no data was seen; the message names the module.
        UnsupportedError: modules with weights and a qconfig that have no quantized form.
        QConfigError: a mapping of other things; a module without qconfig where one is needed; a key
            of convert_custom_config_dict that is not known.
    """
    if not isinstance(module, nn.Module):
        raise UnsupportedError(
            f"convert: got {kind_of(module)}; wanted a module that prepare or prepare_qat "
            "returned. (onnxq.convert takes a Prepared of an ONNX model.)"
        )
    argument = "convert_custom_config_dict"
    config = entries_of(convert_custom_config_dict, argument, (QUANTIZED_CLASSES,))
    mappings = _mappings(mapping, config.get(QUANTIZED_CLASSES))
    check_prepared(module, mappings)  # before the copy: that of a GraphModule has another name
    result = convert_in_place(module if inplace else copy.deepcopy(module), mappings)
    if remove_qconfig:
        for part in result.modules():
            part.__dict__.pop("qconfig", None)
    return result


def swap_module(
    mod: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]],
    custom_module_class_mapping: Mapping[type[nn.Module], Any] | None = None,
) -> nn.Module:
    """The module's quantized module, if it has one and was prepared; else the module.

    Forward hooks of the user's own are kept.

    Raises:
        QConfigError: a mapping of other things.
        CalibrationError: it was prepared, but has seen no data.
    """
    return swapped(mod, _mappings(mapping, custom_module_class_mapping))


def _mappings(
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None,
    custom: Mapping[type[nn.Module], Any] | None,
) -> ModuleMappings:
    """The usual ones with the user's in their place."""
    if mapping is None:
        return replace(DEFAULT_MAPPINGS, custom=custom or {})
    check_mapping(mapping)
    dynamic = DYNAMIC_MAPPING if mapping is STATIC_MAPPING else {}
    return ModuleMappings(mapping, dynamic, custom or {}, leaves_float=True)


def check_mapping(mapping: object) -> None:
    """Passes {module type: module type with from_float}."""
    if not hasattr(mapping, "items"):
        raise QConfigError(
            f"mapping is {kind_of(mapping)}; wanted a dict {{module type: quantized type}}."
        )
    known = {t.__name__: t for t in (*STATIC_MAPPING.values(), *DYNAMIC_MAPPING.values())}
    for key, value in mapping.items():
        if not (isinstance(key, type) and issubclass(key, nn.Module)):
            raise QConfigError(
                f"mapping: key {key!r} is no module type; wanted one like nn.Conv2d."
            )
        if not isinstance(value, type) or not hasattr(value, "from_float"):
            name = value.__name__ if isinstance(value, type) else str(value)
            raise QConfigError(
                f"mapping[{key.__name__}] is {name}; wanted a module type with from_float, such as "
                f"those of onnxq.pytorch.nn.quantized.{nearest(name, known)}"
            )


# --- Post-training quantization and quantization-aware training in one call each.


def default_eval_fn(model: nn.Module, calib_data: Iterable[tuple[Any, Any]]) -> None:
    """Runs the model on the inputs of (input, target) pairs."""
    with torch.no_grad():
        for x, _ in calib_data:
            model(x)


def quantize(
    model: nn.Module,
    run_fn: Callable[..., object],
    run_args: Sequence[Any],
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """The quantized model: prepare, run_fn(prepared, *run_args), convert.

    Args:
        model: float, with qconfigs and stubs; it is put into eval mode.
        run_fn: runs it on data, such as default_eval_fn.
        run_args: what else run_fn is called with.
        mapping: as for convert.
        inplace: changes the model itself.
    Raises:
        OnnxqError: as prepare and convert.
    """
    prepared = model if inplace else copy.deepcopy(model)
    prepared = prepare(prepared.eval(), inplace=True)
    run_fn(prepared, *run_args)
    return convert(prepared, mapping, inplace=True)


def quantize_qat(
    model: nn.Module, run_fn: Callable[..., object], run_args: Sequence[Any], inplace: bool = False
) -> nn.Module:
    """The trained and quantized model: prepare_qat, run_fn(prepared, *run_args), convert.

    Args:
        model: float, with qconfigs and stubs; it is put into train mode.
        run_fn: trains it.
        run_args: what else run_fn is called with.
        inplace: changes the model itself.
    Raises:
        OnnxqError: as prepare_qat and convert.
    """
    prepared = model if inplace else copy.deepcopy(model)
    prepared = prepare_qat(prepared.train(), inplace=True)
    run_fn(prepared, *run_args)
    return convert(prepared.eval(), inplace=True)


def quantize_(
    model: nn.Module,
    config: object,
    samples: Iterable[Inputs] | None = None,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
) -> nn.Module:
    """Quantizes a model as a config says, in torchao's way of asking; onnxq.export writes it.

    With a config of torchao's, torchao quantizes the layers in place: integers and scales are its
    own. With a QConfigDynamic layers are exchanged in place. With a QConfig or QConfigMapping the
    result is another module, traced and calibrated on the samples.

    Args:
        model: float.
        config: torchao's, or one of onnxq.qconfig.
        samples: inputs of forward, each a batch; for what needs the ranges of activations.
        filter_fn: of a module and its name, whether it is quantized; None: every linear layer.
    Returns:
        The quantized model: the same object, where it was changed in place.
    Raises:
        QConfigError: another config.
        CalibrationError: no samples where ranges are needed.
        OnnxqError: as prepare and convert.
    """
    wanted = filter_fn or (lambda module, _: isinstance(module, nn.Linear))
    if type(config).__module__.startswith("torchao."):
        ao: Any = sys.modules["torchao.quantization"]
        if getattr(config, "act_quant_scale", 0) is not None:
            ao.quantize_(model, config, wanted)
            return model
        for layer, own in _with_ranges(model, config, samples, wanted).items():
            ao.quantize_(model, own, lambda part, _, layer=layer: part is layer)
        return model
    if isinstance(config, QConfigDynamic):
        names = [name for name, part in model.named_modules() if wanted(part, name)]
        propagate_qconfig_(model.eval(), dict.fromkeys(names, config))
        return convert(model, inplace=True)
    mapping = QConfigMapping(config) if isinstance(config, QConfig) else config
    if not isinstance(mapping, QConfigMapping):
        raise QConfigError(
            f"quantize_: got {kind_of(config)}; wanted a config of torchao, such as "
            "Int8WeightOnlyConfig(), or a QConfig, QConfigDynamic or QConfigMapping."
        )
    batches = _given(samples, "a static QConfig")
    prepared = prepare(model, inputs=batches[0], qconfig=mapping)
    for batch in batches:
        bound = bind(prepared, batch)
        prepared(*bound.args, **bound.kwargs)
    return convert(prepared)


def _with_ranges(
    model: nn.Module,
    config: Any,
    samples: Iterable[Inputs] | None,
    wanted: Callable[[nn.Module, str], bool],
) -> dict[nn.Module, Any]:
    """Layer -> torchao's config of static activations, with the scale of the layer's input."""
    layers = [part for name, part in model.named_modules() if wanted(part, name)]
    largest: dict[nn.Module, torch.Tensor] = {}

    def watch(layer: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        found = args[0].detach().abs().amax().reshape([1] * args[0].ndim)
        largest[layer] = torch.maximum(largest.get(layer, found), found)

    with hooked([layer.register_forward_pre_hook(watch) for layer in layers]):
        for batch in _given(samples, type(config).__name__):
            compute(model, bind(model, batch))
    most = _INT8_MAX // 2 if config.reduce_range else _INT8_MAX
    return {
        layer: dataclasses.replace(config, act_quant_scale=value.clamp_min(_LEAST) / most)
        for layer, value in largest.items()
    }


def _given(samples: Iterable[Inputs] | None, wanted_by: str) -> list[Inputs]:
    batches = list(samples or ())
    if not batches:
        raise CalibrationError(
            f"quantize_: {wanted_by} needs the ranges of activations; give samples, a list of "
            "batches such as model takes."
        )
    return batches
