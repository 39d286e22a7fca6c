"""Puts quantized modules in the place of prepared ones.

Usage: quantized = onnxq.pytorch.convert(prepared.eval())
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import fx, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import ModelError, OnnxqError, UnsupportedError, listed
from onnxq.pytorch.eager.custom_config import QUANTIZED_CLASSES, entries_of
from onnxq.pytorch.modules.hooks import move_hooks, move_pre_hooks, remove_hooks
from onnxq.pytorch.modules.places import places
from onnxq.pytorch.modules.stubs import DeQuantStub
from onnxq.pytorch.nn.qat import QatModule
from onnxq.pytorch.nn.quantized import DeQuantize
from onnxq.pytorch.nn.quantized.observed import output_fake_quantize
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.train.agreeing_sums import let_sums_agree
from onnxq.pytorch.train.grid_keeping import keep_rounding
from onnxq.pytorch.train.mappings import DYNAMIC_MAPPING, STATIC_MAPPING, check_mapping
from onnxq.pytorch.train.never_ran import leave_float
from onnxq.pytorch.train.placed import PLACEMENTS
from onnxq.pytorch.train.sources import is_watching
from onnxq.qconfig import QConfig, QConfigDynamic

if TYPE_CHECKING:
    from collections.abc import Mapping

# Parameters that a module may have and yet compute in float between two grids, as it was trained.
_FLOAT_BETWEEN_CODES = (nn.PReLU,)


def convert(
    module: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    convert_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The module with quantized modules in place of those that were observed or trained.

    A FakeQuantize anywhere becomes `nn.quantized.Requantize`, so that what stands between is
    computed in float, from codes to codes. Modules that no data reached stay in float, with a
    warning, and are refused where an export reaches them (see onnxq.pytorch.train.never_ran).
    Scales of sums are raised, by 1 in a million as a rule, to where every machine adds codes to the
    same (see onnxq.pytorch.train.agreeing_sums).

    Args:
        module: of `prepare` or `prepare_qat`, after it has seen data.
        mapping: {type: quantized type with from_float}; what it lacks stays as it is. None:
            STATIC_MAPPING of onnxq.pytorch.train.mappings, and DYNAMIC_MAPPING for modules whose
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
            f"convert: got a {type(module).__name__}; wanted a module that prepare or prepare_qat "
            "returned. (onnxq.convert takes a Prepared of an ONNX model.)"
        )
    chosen = STATIC_MAPPING if mapping is None else mapping
    check_mapping(chosen)
    argument = "convert_custom_config_dict"
    config = entries_of(convert_custom_config_dict, argument, (QUANTIZED_CLASSES,))
    custom: Mapping[type[nn.Module], Any] = config.get(QUANTIZED_CLASSES, {})
    mappings = Mappings(chosen, custom)
    if mapping is None:
        _refuse_unsupported(module, {**chosen, **custom})
    _check_prepared(module, mappings)
    target = module if inplace else copy.deepcopy(module)
    leave_float(target, custom)
    let_sums_agree(target)
    result = _converted(target, mappings, "", {})
    for part in result.modules():
        remove_hooks(part, is_watching)
    if remove_qconfig:
        for part in result.modules():
            part.__dict__.pop("qconfig", None)
    return result


class Mappings(NamedTuple):
    """What takes the place of what.

    Attributes:
        usual: {type: quantized type with from_float}.
        custom: {observed type: quantized type with from_observed}.
    """

    usual: Mapping[type[nn.Module], type[nn.Module]]
    custom: Mapping[type[nn.Module], Any]


def swap_module(
    mod: nn.Module,
    mapping: Mapping[type[nn.Module], type[nn.Module]],
    custom_module_class_mapping: Mapping[type[nn.Module], Any] | None = None,
) -> nn.Module:
    """The module's quantized counterpart, if it has one and was prepared; else the module.

    Forward hooks of the user's own are kept.

    Args:
        mod: prepared.
        mapping: {type: quantized type with from_float}.
        custom_module_class_mapping: {observed type: quantized type with from_observed}.

    Raises:
        QConfigError: a mapping of other things.
        CalibrationError: it was prepared, but has seen no data.
    """
    check_mapping(mapping)
    return _swapped(mod, Mappings(mapping, custom_module_class_mapping or {}))


def _swapped(mod: nn.Module, mappings: Mappings) -> nn.Module:
    mapping = mappings.usual
    own = mappings.custom.get(type_before_parametrizations(mod))
    if own is not None:
        return _with_hooks(mod, own.from_observed(mod))
    kind = mapping.get(type_before_parametrizations(mod))
    if mapping is STATIC_MAPPING and isinstance(getattr(mod, "qconfig", None), QConfigDynamic):
        kind = DYNAMIC_MAPPING.get(type_before_parametrizations(mod))
    if kind is None or not _is_prepared(mod):
        return mod
    if getattr(kind, "keeps_grid", False) and output_fake_quantize(mod) is not None:
        return mod  # it was trained with a grid of its own, which its FakeQuantize becomes
    return _with_hooks(mod, kind.from_float(mod))  # type: ignore[attr-defined]


def _with_hooks(mod: nn.Module, made: nn.Module) -> nn.Module:
    """The new module, with the mode and the user's hooks of the old."""
    made.train(mod.training)
    move_pre_hooks(mod, made)
    move_hooks(mod, made)
    remove_hooks(made, _is_own_hook)
    keep_rounding(mod, made)
    return made


def _is_own_hook(hook: object) -> bool:
    """Whether onnxq registered it, to observe the output."""
    where = getattr(hook, "__module__", None) or type(hook).__module__
    return where.startswith("onnxq.pytorch.")


def _is_prepared(mod: nn.Module) -> bool:
    """Whether the module has something to say of how it is quantized."""
    if isinstance(mod, FakeQuantize | QatModule | DeQuantStub):
        return True
    return output_fake_quantize(mod) is not None or isinstance(
        getattr(mod, "qconfig", None), QConfig | QConfigDynamic
    )


def _converted(
    module: nn.Module,
    mappings: Mappings,
    path: str,
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """The module, or what takes its place; one that stands in two places is converted once."""
    if module in done:
        return done[module]
    try:
        result = _swapped(module, mappings)
    except OnnxqError as error:
        raise type(error)(f"'{path or type(module).__name__}': {error}") from error
    done[module] = result
    if result is module and not isinstance(module, QatModule | FakeQuantize):
        for name, child in places(module):
            inner = f"{path}.{name}" if path else name
            setattr(module, name, _converted(child, mappings, inner, done))
        module.__dict__.pop("input_fake_quant", None)
    return result


def _check_prepared(module: nn.Module, mappings: Mappings) -> None:
    """Refuses a float module that would come back as it is."""
    if any(_is_convertible(part, mappings) for part in module.modules()):
        return
    if any(_placements(part) is not None for part in module.modules()):
        warnings.warn(
            f"convert: nothing in {type(module).__name__} is quantized, so that it stays in float. "
            "print(onnxq.pytorch.placements(model, inputs, qconfig)) says why.",
            UserWarning,
            stacklevel=3,
        )
        return
    raise ModelError(
        f"convert: nothing in {type(module).__name__} is prepared: it has no FakeQuantize, and no "
        "module with a qconfig that has a quantized form; it would come back in float, as it is. "
        "Convert what prepare(model) or prepare_qat(model) returned, after it has seen data (with "
        "inputs=example they need no stubs and qconfigs). For dynamic quantization call "
        "quantize_dynamic(model), or propagate_qconfig_ with a QConfigDynamic before convert."
    )


def _placements(part: nn.Module) -> object:
    return part.meta.get(PLACEMENTS) if isinstance(part, fx.GraphModule) else None


def _is_convertible(part: nn.Module, mappings: Mappings) -> bool:
    """Whether it was prepared, is to be dynamic, or is quantized already."""
    kind = type_before_parametrizations(part)
    quantized = {*STATIC_MAPPING.values(), *DYNAMIC_MAPPING.values(), *mappings.usual.values()}
    if isinstance(part, FakeQuantize | QatModule) or kind in mappings.custom:
        return True
    if kind in quantized - {DeQuantize}:  # a float module has DeQuantStubs, too
        return True
    qconfig = getattr(part, "qconfig", None)
    if isinstance(qconfig, QConfigDynamic) and kind in DYNAMIC_MAPPING:
        return True
    return isinstance(qconfig, QConfig | QConfigDynamic) and kind in mappings.usual


def _refuse_unsupported(
    module: nn.Module, mapping: Mapping[type[nn.Module], type[nn.Module]]
) -> None:
    """Refuses leaves that have weights and a qconfig, and no quantized form."""
    found = [
        f"{name or type(part).__name__} ({type(part).__name__})"
        for name, part in module.named_modules()
        if _is_unsupported(part, mapping)
    ]
    if found:
        raise UnsupportedError(
            f"convert: no quantized form of {listed(found)}, which have weights and a qconfig. Set "
            "their qconfig to None before prepare, between a DeQuantStub and a QuantStub, to leave "
            "them in float; or give a mapping for their types."
        )


def _is_unsupported(part: nn.Module, mapping: Mapping[type[nn.Module], type[nn.Module]]) -> bool:
    if type_before_parametrizations(part) in mapping or isinstance(part, FakeQuantize):
        return False
    if not isinstance(getattr(part, "qconfig", None), QConfig):
        return False
    inner = [child for child in part.children() if not isinstance(child, FakeQuantize)]
    weights = list(part.parameters(recurse=False))
    return not inner and bool(weights) and not isinstance(part, _FLOAT_BETWEEN_CODES)
