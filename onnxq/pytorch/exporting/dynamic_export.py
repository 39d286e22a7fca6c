"""PyTorch module -> dynamically quantized ONNX model: export, plan, rewrite.

Usage: onnxq.pytorch.quantize_dynamic(module, {nn.LSTM, nn.Linear}, inputs=example)

The exporter notes on each node the modules that it comes from ("", "encoder", "encoder.fc"); the
entry of the innermost one that the spec names, or whose type it names, is the node's.
"""

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import onnx_ir as ir
import torch
from torch import nn

from onnxq import targets
from onnxq.catalog import has_dynamic_quantization
from onnxq.dynamic.dynamic_decision import Objective, as_objective
from onnxq.dynamic.requests import check_dtype
from onnxq.dynamic.spec import as_dtype, dynamic_op_types, entry_for
from onnxq.errors import ModelError, QConfigError, UnsupportedError, kind_of, nearest
from onnxq.graph.canonical import canonicalize
from onnxq.graph.walk import node_name, walk
from onnxq.ort.types_by_run import types_by_run
from onnxq.pipeline import quantize_dynamic as quantize_model
from onnxq.pytorch.arguments.axes import DynamicAxes
from onnxq.pytorch.arguments.bound_inputs import Inputs
from onnxq.pytorch.arguments.example_inputs import example_inputs
from onnxq.pytorch.exporting.exporter import export
from onnxq.pytorch.train.conversion import DYNAMIC_MAPPING
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.targets import Target

Key = type[nn.Module] | str
ModuleSpec = AbstractSet[Key] | Mapping[Key, QConfigDynamic | None] | QConfigDynamic | None
"""None: everything; module types and names of submodules; {type or name: entry}; one for all."""

# Named together in documents; a model has some of them.
_USUAL: tuple[type[nn.Module], ...] = (
    *DYNAMIC_MAPPING,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.MultiheadAttention,
)
_SCOPES = "pkg.torch.onnx.name_scopes"
_DEFAULT = torch.qint8


def quantize_dynamic(  # torch's signature, and what exporting needs
    model: nn.Module,
    qconfig_spec: ModuleSpec = None,
    dtype: torch.dtype | None = torch.qint8,
    mapping: None = None,
    inplace: object = False,
    *,
    inputs: Inputs | None = None,
    dynamic_axes: DynamicAxes | None = None,
    target: str | Target | None = None,
    objective: Objective | str = Objective.SPEED,
) -> QuantizedModel:
    """The module as an ONNX model whose weights are quantized: what `onnxq.quantize_dynamic` makes.

    Args:
        model: as `onnxq.export` takes it; it is not changed.
        qconfig_spec: a set of module types and names of submodules; or {type or name: entry, None
            for float}; or one QConfigDynamic; or None: every operator that has a dynamic form. What
            is said of a module holds for what is inside, unless the spec says otherwise of that. A
            type stands for its subclasses too.
        dtype: of the weights where the spec is a set or None: torch.qint8 or torch.float16; None,
            and torch.qint8 beside entries that say otherwise: not asked for.
        mapping: of torch's signature; must be None: there are no quantized modules to map to.
        inplace: of torch's signature; must be False: the result is another thing than a module.
        inputs: example inputs, as `onnxq.export` takes them; None: what the module or its file
            offers (see `onnxq.pytorch.example_inputs`).
        dynamic_axes: as `onnxq.export` takes them.
        target: the machine that the result is for; None: `targets.get_default()`.
        objective: "speed" leaves in float what would be slower, "size" quantizes every weight.
    Raises:
        UnsupportedError: a mapping, in place; what `onnxq.export` raises.
        QConfigError: a type or name that the module does not have, an entry that is not dynamic, a
            dtype that weights are not stored in or that an entry contradicts; what
            `onnxq.quantize_dynamic` raises.
        ModelError: the model is no module; one that is named has no weights that are quantized
            dynamically.
    """
    if mapping is not None:
        raise UnsupportedError(
            "mapping: onnxq has no quantized modules to map to; it rewrites the exported model. "
            "Leave it out, and say in qconfig_spec how modules are quantized."
        )
    if inplace:
        raise UnsupportedError(
            "inplace: the result is an ONNX model, the module stays as it is. Leave it out."
        )
    if not isinstance(model, nn.Module):
        shown = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ModelError(
            f"the model is {shown}; wanted a torch.nn.Module, an instance and not its class. A "
            "path, an onnx.ModelProto or an onnx_ir.Model is for onnxq.quantize_dynamic."
        )
    aim, machine = as_objective(objective), targets.resolve(target)  # exporting takes seconds
    entries = _entries(model, qconfig_spec, dtype)
    examples = example_inputs(model) if inputs is None else inputs
    exported = export(model, examples, dynamic_axes=dynamic_axes)
    if entries is None:
        wanted = as_dtype(_DEFAULT if dtype is None else dtype)
        return quantize_model(exported, None, wanted, target=machine, objective=aim)
    if isinstance(entries, QConfigDynamic):
        return quantize_model(exported, entries, target=machine, objective=aim)
    canonical = canonicalize(exported, types_by_run).model
    chosen = entries_of_nodes(model, canonical, entries)
    return quantize_model(exported, chosen, target=machine, objective=aim)


Entries = Mapping[Key, QConfigDynamic | None]


def _entries(
    model: nn.Module, spec: ModuleSpec, dtype: torch.dtype | None
) -> Entries | QConfigDynamic | None:
    """The spec as {type or name: entry}, checked against the module and the dtype."""
    wanted = as_dtype(_DEFAULT if dtype is None else dtype)
    entry, asked = entry_for(wanted), dtype not in (None, _DEFAULT)
    if isinstance(spec, QConfigDynamic) and asked:
        check_dtype({"qconfig_spec": spec}, wanted)
    if spec is None or isinstance(spec, QConfigDynamic):
        return spec
    entries: Entries
    if isinstance(spec, Mapping):
        entries = spec
    elif isinstance(spec, AbstractSet | list | tuple):
        entries = dict.fromkeys(spec, entry)
    else:
        raise QConfigError(
            f"qconfig_spec is {kind_of(spec)} ({spec!r}); wanted None, a set such as "
            "{nn.LSTM, nn.Linear}, or a dict {module type or name: QConfigDynamic}."
        )
    for key, value in entries.items():
        _check_key(model, key)
        if value is not None and not isinstance(value, QConfigDynamic):
            raise QConfigError(
                f"qconfig_spec[{_shown(key)}] is {kind_of(value)}; wanted a QConfigDynamic "
                "of onnxq.qconfig, such as default_dynamic_qconfig, or None for float."
            )
    if asked:
        check_dtype({f"qconfig_spec[{_shown(key)}]": e for key, e in entries.items()}, wanted)
    return entries


def _check_key(model: nn.Module, key: object) -> None:
    """Passes what the module has, and the usual types, which documents name together."""
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    types = {type(module) for module in model.modules()}
    if isinstance(key, str):
        if key not in names:
            known = [name for name in names if name]
            raise QConfigError(
                f"qconfig_spec: {type(model).__name__} has no submodule '{key}'; it has "
                f"{', '.join(known) or 'none'}.{_type_meant(key, types) or nearest(key, known)}"
            )
        return
    if not (isinstance(key, type) and issubclass(key, nn.Module)):
        raise QConfigError(
            f"qconfig_spec: got {key!r}; wanted a type of module, such as nn.Linear, or the name "
            "of a submodule."
        )
    if key in _USUAL or any(issubclass(kind, key) for kind in types):
        return
    found = sorted({kind.__name__ for kind in types})
    raise QConfigError(
        f"qconfig_spec: {type(model).__name__} has no module of type {key.__name__}; it has "
        f"{', '.join(found)}.{nearest(key.__name__, found)}"
    )


def _type_meant(key: str, types: set[type[nn.Module]]) -> str:
    """A phrase to end a message with, where a string is the name of a type of module."""
    for kind in (*_USUAL, *sorted(types, key=lambda kind: kind.__name__)):
        if kind.__name__.lower() == key.removeprefix("nn.").lower():
            prefix = "nn." if kind.__module__.startswith("torch.nn.") else ""
            return f" Did you mean the type {prefix}{kind.__name__}, without quotes?"
    return ""


def entries_of_nodes(model: nn.Module, canonical: ir.Model, entries: Entries) -> QConfigMapping:
    """The entries by node."""
    modules = dict(model.named_modules(remove_duplicate=False))
    nodes: dict[str, QConfigDynamic | None] = {}
    reached: set[str] = set()  # names of the modules that such nodes come from
    for node, _ in walk(canonical.graph):
        if not has_dynamic_quantization(node):
            continue
        # names of modules, outermost first; then torch's own operator
        noted = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))[:-1]
        scopes = [scope for scope in map(str, noted) if scope in modules]
        reached.update(scopes)
        key = _key_of(scopes, modules, entries)
        if key is not None:
            nodes[node_name(node)] = entries[key]
    objects = {id(modules[name]) for name in reached}
    lost = [
        key
        for key, entry in entries.items()
        if entry is not None and not _is_reached(key, modules, objects)
    ]
    # the usual types are named together, whether a model has them or not
    if not nodes or any(key not in _USUAL for key in lost):
        odd = [key for key in lost if key not in _USUAL] or list(entries)
        raise ModelError(_without_operators(model, odd, modules, reached))
    return QConfigMapping(None, {}, nodes)


def _is_reached(key: Key, modules: Mapping[str, nn.Module], objects: set[int]) -> bool:
    """Whether an operator with a dynamic form comes from a module of that name or type."""
    if isinstance(key, str):
        return id(modules[key]) in objects
    return any(isinstance(m, key) and id(m) in objects for m in modules.values())


def _without_operators(
    model: nn.Module, keys: list[Key], modules: Mapping[str, nn.Module], reached: set[str]
) -> str:
    """The message on keys that name nothing that is quantized dynamically."""
    named = ", ".join(_shown(key) for key in keys) or "nothing"
    text = (
        f"qconfig_spec names {named}: no such module of {type(model).__name__} became an "
        f"operator that is quantized dynamically ({', '.join(dynamic_op_types())}). It has "
        f"{', '.join(sorted({type(m).__name__ for m in modules.values()}))}."
    )
    for key in keys:
        parts = key.split(".") if isinstance(key, str) else []
        around = [".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
        user = next((name for name in around if name in reached), None)
        if user is not None:
            kind = type(modules[user]).__name__
            text += f" If '{user}' ({kind}) computes with its weights, name that one."
    return text


def _key_of(scopes: list[str], modules: Mapping[str, nn.Module], entries: Entries) -> Key | None:
    """The key that holds for a node: of the innermost module, its name before its type."""
    for scope in reversed(scopes):
        names = [name for name, module in modules.items() if module is modules[scope]]
        named = next((name for name in (scope, *names) if name in entries), None)
        if named is not None:
            return named
        kinds = type(modules[scope]).__mro__
        found = next((kind for kind in kinds if kind in entries), None)
        if found is not None:
            return found
    return None


def _shown(key: Key) -> str:
    return f"'{key}'" if isinstance(key, str) else key.__name__
