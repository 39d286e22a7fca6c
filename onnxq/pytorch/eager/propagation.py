"""Hands each module's qconfig on to the modules in it."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import QConfigError, listed, nearest
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.qconfig import Entry

# --- The documented `..._custom_config_dict` arguments: a key that means nothing is refused.

FUSER_METHODS = "additional_fuser_method_mapping"
OBSERVED_CLASSES = "float_to_observed_custom_module_class"
OPAQUE_NAMES = "non_traceable_module_name"
OPAQUE_TYPES = "non_traceable_module_class"
QUANTIZED_CLASSES = "observed_to_quantized_custom_module_class"
PREPARING = (OBSERVED_CLASSES, OPAQUE_NAMES, OPAQUE_TYPES)

_OF_GRAPH_MODE = "preserved_attributes"  # in all of torch's; modules keep all their attributes


def entries_of(
    config: Mapping[str, Any] | None, argument: str, known: tuple[str, ...]
) -> dict[str, Any]:
    """Entries of the dictionary, by key."""
    given = dict(config or {})
    given.pop(_OF_GRAPH_MODE, None)
    for key in given:
        if key not in known:
            raise QConfigError(
                f"{argument}: key '{key}' is not known; known: {listed(known)}."
                f"{nearest(str(key), known)}"
            )
    return given


def propagate_qconfig_(
    module: nn.Module,
    qconfig_dict: Mapping[str | type[nn.Module], object] | None = None,
    prepare_custom_config_dict: Mapping[str, object] | None = None,
) -> None:
    """Gives every module a `qconfig`: its own, else its name's, its type's, that of the one around.

    Args:
        module: changed in place.
        qconfig_dict: {name of a submodule, or module type: QConfig, QConfigDynamic or None}; the
            name "" is the module itself. torch.ao's QConfigs are taken, too.
        prepare_custom_config_dict: may name modules and types to leave alone, as
            "non_traceable_module_name" and "non_traceable_module_class".
    Raises:
        QConfigError: a name that the module does not have; a value that is no QConfig; a key of
            prepare_custom_config_dict that is not known.
    """
    entries = dict(qconfig_dict or {})
    names = [name for name, _ in module.named_modules()]
    for key in entries:
        if isinstance(key, str) and key not in names:
            raise QConfigError(
                f"qconfig_dict: the model has no module '{key}'.{nearest(key, names)}"
            )
        if not isinstance(key, str) and not (isinstance(key, type) and issubclass(key, nn.Module)):
            raise QConfigError(
                f"qconfig_dict: key {key!r}; wanted the name of a submodule or a module type."
            )
    custom = entries_of(prepare_custom_config_dict, "prepare_custom_config_dict", PREPARING)
    opaque: tuple[object, ...] = (*_listed(custom, OPAQUE_NAMES), *_listed(custom, OPAQUE_TYPES))
    _propagate(module, "", None, entries, opaque)


def _listed(custom: Mapping[str, object], key: str) -> tuple[object, ...]:
    value = custom.get(key, ())
    if not isinstance(value, list | tuple | set):
        raise QConfigError(f"prepare_custom_config_dict['{key}']: got {value!r}; wanted a list.")
    return tuple(value)


def _propagate(
    module: nn.Module,
    name: str,
    around: Entry,
    entries: Mapping[str | type[nn.Module], object],
    opaque: tuple[object, ...],
) -> None:
    kind = type_before_parametrizations(module)
    chosen = entries.get(kind, around)
    chosen = entries.get(name, chosen)
    chosen = getattr(module, "qconfig", chosen)
    where = f"'{name}' ({kind.__name__})" if name else kind.__name__
    own = own_entry(chosen, where)
    module.qconfig = own  # type: ignore[assignment]  # modules take any attribute
    for short, child in module.named_children():
        if short in opaque or type(child) in opaque:
            continue
        _propagate(child, f"{name}.{short}" if name else short, own, entries, opaque)
