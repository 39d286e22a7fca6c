"""Where modules stand in a model; one may stand in several places, as layers that share weights do.

nn.Module.named_children() names the first of these places alone.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from torch import nn
from torch.utils.hooks import RemovableHandle

from onnxq.pytorch.arguments.flat import AFTER, BEFORE, HOOKS


def places(parent: nn.Module) -> list[tuple[str, nn.Module]]:
    """(name, child) of every place in a module, in order."""
    return [(name, child) for name, child in vars(parent)["_modules"].items() if child is not None]


def exchanged(root: nn.Module, others: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The model with other modules in all places of some; changed in place, but for the root."""
    for parent in list(root.modules()):
        for name, child in places(parent):
            if child in others:
                setattr(parent, name, others[child])
    return others.get(root, root)


# --- Hands the hooks of a module on to the one that takes its place; torch has no public way.


def move_hooks(old: nn.Module, new: nn.Module, kinds: Sequence[str] = HOOKS) -> None:
    """Gives `new` the hooks that run before and after `old`'s forward, or those of some kinds."""
    for name in kinds:
        getattr(new, name).update(getattr(old, name))


def drop_hooks(module: nn.Module) -> None:
    """Removes the hooks that run before and after forward."""
    for name in HOOKS:
        getattr(module, name).clear()


def remove_hooks(module: nn.Module, unwanted: Callable[[object], bool]) -> None:
    """Removes those hooks before and after forward of which `unwanted` says True."""
    for name in (BEFORE[0], AFTER[0]):
        for key, hook in list(getattr(module, name).items()):
            if unwanted(hook):
                for known in HOOKS:
                    getattr(module, known).pop(key, None)


def has_pre_hook(module: nn.Module, hook: object) -> bool:
    """Whether this hook runs before forward."""
    return any(known is hook for known in getattr(module, BEFORE[0]).values())


@contextlib.contextmanager
def hooked(handles: Sequence[RemovableHandle]) -> Iterator[None]:
    """A context at whose end these hooks are removed."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def following(model: nn.Module, running: list[str]) -> AbstractContextManager[None]:
    """A context in which paths of the modules that run are appended, the innermost one last."""

    def leave(*_: object) -> None:
        running.pop()

    parts = list(model.named_modules())
    enter = [m.register_forward_pre_hook(lambda *_, p=path: running.append(p)) for path, m in parts]
    return hooked([*enter, *(module.register_forward_hook(leave) for _, module in parts)])


def carry_over(old: nn.Module, new: nn.Module) -> nn.Module:
    """The new module, with mode, qconfig and hooks of the old."""
    new.train(old.training)
    if hasattr(old, "qconfig"):
        new.qconfig = old.qconfig
    move_hooks(old, new)
    return new


# --- A copy of a module's structure, that shares its tensors and puts other things in given places.
#
# copy.deepcopy packs quantized weights again, for the engine of the moment, which may refuse them.


def copy_structure(module: nn.Module, known: dict[int, nn.Module]) -> nn.Module:
    """The module and its submodules anew, tensors and other attributes shared; `known` grows."""
    if id(module) in known:
        return known[id(module)]
    made: nn.Module = object.__new__(type(module))
    known[id(module)] = made
    for name, value in vars(module).items():
        # dictionaries of parameters, buffers and hooks are the module's own; what is in them is not
        made.__dict__[name] = type(value)(value) if isinstance(value, dict) else value
    children = made.__dict__["_modules"]
    for name, child in children.items():
        children[name] = None if child is None else copy_structure(child, known)
    for name, value in list(vars(made).items()):
        if id(value) in known and name not in children:
            del made.__dict__[name]
            setattr(made, name, known[id(value)])
    return made
