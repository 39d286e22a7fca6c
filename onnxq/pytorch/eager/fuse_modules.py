"""Puts one module in the place of several that run one after another.

    eval mode:   conv, bn -> conv with bn folded in;  conv, bn, relu -> ConvReLU
    train mode:  conv, bn -> ConvBn;                  conv, bn, relu -> ConvBnReLU

The first of the modules becomes the fused one, the others nn.Identity.
"""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import type_before_parametrizations

from onnxq.errors import ModelError, OnnxqError, QConfigError, UnsupportedError, nearest
from onnxq.pytorch.arguments.flat import AFTER, BEFORE
from onnxq.pytorch.eager.propagation import FUSER_METHODS, entries_of
from onnxq.pytorch.modules.folding import folded
from onnxq.pytorch.modules.places import drop_hooks, move_hooks
from onnxq.pytorch.nn.intrinsic import FUSED, FusedModule, without_batch_norm

Fuser = Callable[..., nn.Module]
Pattern = tuple[type[nn.Module], ...]


_TRAINED: Mapping[Pattern, Fuser] = {kind.PARTS: kind for kind in FUSED}
"""Makers of modules in train mode: batch norm is kept, and trained."""


def _evaluated(kind: type[FusedModule]) -> Fuser:
    """Maker of modules in eval mode: batch norm is folded into the layer before it."""
    if not kind.folds_batch_norm():
        return kind
    left = without_batch_norm(kind)
    if not issubclass(left, FusedModule):
        return folded
    return lambda layer, bn, *others: left(folded(layer, bn), *others)


_EVALUATED: Mapping[Pattern, Fuser] = {kind.PARTS: _evaluated(kind) for kind in FUSED}


def fuse_known_modules(
    mod_list: Sequence[nn.Module],
    additional_fuser_method_mapping: Mapping[Pattern, Fuser] | None = None,
) -> list[nn.Module]:
    """The fused module, and an Identity for each of the others.

    Hooks that run before the first module or after the last one are kept.

    Args:
        mod_list: modules that run one after another, all in train or all in eval mode.
        additional_fuser_method_mapping: {types: function of such modules that returns the fused}.
    Raises:
        UnsupportedError: modules of other types.
        ModelError: some are in train mode and some are not; batch norm without statistics.
    """
    if len({mod.training for mod in mod_list}) > 1:
        raise ModelError(
            "fuse_modules: some of the modules are in train mode and some in eval mode "
            f"({', '.join(f'{type(m).__name__}.training={m.training}' for m in mod_list)}). Call "
            "model.train() for quantization-aware training, model.eval() for post-training."
        )
    known = _TRAINED if mod_list[0].training else _EVALUATED
    types = tuple(type_before_parametrizations(mod) for mod in mod_list)
    method = {**known, **(additional_fuser_method_mapping or {})}.get(types)
    if method is None:
        names = [_names(pattern) for pattern in known]
        raise UnsupportedError(
            f"fuse_modules: no module stands for ({_names(types)}); known: "
            f"({'), ('.join(names)}).{nearest(_names(types), names)}"
        )
    hooks = _take_hooks(mod_list)
    fused = method(*mod_list)
    move_hooks(hooks, fused)
    if hasattr(mod_list[0], "qconfig"):
        fused.qconfig = mod_list[0].qconfig
    training = mod_list[0].training
    return [fused.train(training), *(nn.Identity().train(training) for _ in mod_list[1:])]


def _names(pattern: Pattern) -> str:
    return ", ".join(kind.__name__ for kind in pattern)


def _take_hooks(mod_list: Sequence[nn.Module]) -> nn.Module:
    """A module with the hooks before the first and after the last; the modules lose theirs."""
    holder = nn.Module()
    move_hooks(mod_list[0], holder, BEFORE)
    move_hooks(mod_list[-1], holder, AFTER)
    inner = [
        type(mod).__name__
        for at, mod in enumerate(mod_list)
        if (at and getattr(mod, BEFORE[0])) or (at < len(mod_list) - 1 and getattr(mod, AFTER[0]))
    ]
    if inner:
        warnings.warn(
            f"fuse_modules: hooks between the modules ({', '.join(inner)}) are dropped; what they "
            "would see no longer exists.",
            stacklevel=5,
        )
    for mod in mod_list:
        drop_hooks(mod)
    return holder


def fuse_modules(
    model: nn.Module,
    modules_to_fuse: Sequence[str] | Sequence[Sequence[str]],
    inplace: bool = False,
    fuser_func: Callable[..., Sequence[nn.Module]] = fuse_known_modules,
    fuse_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model with modules fused; as a float model it computes what it did.

    Args:
        model: in eval mode for post-training quantization (batch norm is folded into the weights),
            in train mode for quantization-aware training (it is kept, and trained).
        modules_to_fuse: names of modules that run one after another, or a list of such lists.
        inplace: changes the model itself.
        fuser_func: takes modules and "additional_fuser_method_mapping", returns as many modules.
        fuse_custom_config_dict: {"additional_fuser_method_mapping": {types: function of modules of
            these types that returns the fused one}}.
    Raises:
        QConfigError: a name that the model does not have; names that are no lists of names; a key
            of fuse_custom_config_dict that is not known.
        UnsupportedError: modules that nothing stands for.
        ModelError: modules of which some are in train mode and some are not.
    """
    result = model if inplace else copy.deepcopy(model)
    config = entries_of(fuse_custom_config_dict, "fuse_custom_config_dict", (FUSER_METHODS,))
    additional = config.get(FUSER_METHODS, {})
    for names in _groups(modules_to_fuse):
        modules = [_named(result, name) for name in names]
        try:
            fused = fuser_func(modules, additional)
        except OnnxqError as error:
            raise type(error)(f"{list(names)}: {error}") from error
        if len(fused) != len(modules):
            raise QConfigError(
                f"fuser_func returned {len(fused)} modules for {list(names)}; wanted as many: the "
                "fused one, and an nn.Identity for each of the others."
            )
        for name, module in zip(names, fused, strict=True):
            around, _, short = name.rpartition(".")
            setattr(result.get_submodule(around), short, module)
    return result


def fuse_modules_qat(
    model: nn.Module,
    modules_to_fuse: Sequence[str] | Sequence[Sequence[str]],
    inplace: bool = False,
    fuser_func: Callable[..., Sequence[nn.Module]] = fuse_known_modules,
    fuse_custom_config_dict: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model with modules fused, and batch norm kept, so that it can be trained.

    Raises:
        ModelError: the model is in eval mode.
        OnnxqError: as fuse_modules.
    """
    if not model.training:
        raise ModelError(
            "fuse_modules_qat: the model is in eval mode. Call model.train() first; or "
            "fuse_modules, which folds batch norm, for post-training quantization."
        )
    return fuse_modules(model, modules_to_fuse, inplace, fuser_func, fuse_custom_config_dict)


def _groups(modules_to_fuse: object) -> list[Sequence[str]]:
    """Lists of names, however they were given."""
    wanted = "wanted a list of names, or a list of such lists, as [['conv', 'bn', 'relu']]"
    if isinstance(modules_to_fuse, str) or not isinstance(modules_to_fuse, list | tuple):
        raise QConfigError(f"modules_to_fuse: got {modules_to_fuse!r}; {wanted}.")
    if modules_to_fuse and all(isinstance(name, str) for name in modules_to_fuse):
        return [modules_to_fuse]
    for names in modules_to_fuse:
        is_list = isinstance(names, list | tuple) and all(isinstance(n, str) for n in names)
        if not is_list or len(set(names)) != len(names) or not names:
            raise QConfigError(f"modules_to_fuse: got {names!r} in it; {wanted}, each name once.")
    return list(modules_to_fuse)


def _named(model: nn.Module, name: str) -> nn.Module:
    modules = dict(model.named_modules(remove_duplicate=False))
    if name not in modules or not name:
        raise QConfigError(
            f"modules_to_fuse: the model has no module '{name}'.{nearest(name, modules)}"
        )
    found: nn.Module = modules[name]
    return found
