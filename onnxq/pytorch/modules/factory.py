"""Finds the module that a command line names: "package.file:factory", and loads weights into it."""

import importlib
import importlib.util
import pickle
import pkgutil
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from onnxq.core.regular import why_no_file
from onnxq.errors import ModelError, QConfigError, first_line, kind_of, listed, nearest

Factory = Callable[[], nn.Module]

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin")
"""Endings of files that torch.save wrote."""
_UNUSED_IN_EVAL = "num_batches_tracked"  # BatchNorm's step counter: no export depends on it


def load_factory(spec: str) -> Factory:
    """The callable that "module.path:name" names; the current folder is put on the module path.

    Raises:
        QConfigError: spec of another form, no such module, no such callable in it.
    """
    path, colon, name = spec.partition(":")
    if not (path and colon and name):
        raise QConfigError(f"'{spec}': wanted MODULE:FACTORY, as in models.resnet:resnet20.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    file = _import(path, spec)
    factory: Factory | None = getattr(file, name, None)
    if callable(factory):
        return factory
    known = [n for n, value in vars(file).items() if callable(value) and not n.startswith("_")]
    raise QConfigError(f"'{spec}': {path} has no callable '{name}'.{nearest(name, known)}")


def _import(path: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if path != missing and not path.startswith(f"{missing}."):
            raise QConfigError(
                f"'{spec}': {path} imports '{missing}', which is not installed. Install it first."
            ) from error
        raise QConfigError(
            f"'{spec}': no module '{path}' in {Path.cwd()} or on the Python path."
            f"{nearest(path, _siblings(path))} Run the command in the folder that holds it."
        ) from error


def _siblings(path: str) -> list[str]:
    """Importable names beside the one that is missing."""
    parent, _, _ = path.rpartition(".")
    if not parent:
        return [module.name for module in pkgutil.iter_modules([str(Path.cwd())])]
    try:
        package = importlib.import_module(parent)
    except ImportError:
        return []  # only the suggestion is lost; the caller raises
    return [
        f"{parent}.{module.name}"
        for module in pkgutil.iter_modules(getattr(package, "__path__", []))
    ]


def load_module(spec: str, weights: str | Path | None = None) -> nn.Module:
    """The module that the factory makes, with weights loaded, in eval mode.

    Raises:
        QConfigError: as load_factory.
        ModelError: the factory fails or makes no nn.Module; as load_weights.
    """
    factory = load_factory(spec)
    try:
        module = factory()
    except TypeError as error:
        raise ModelError(
            f"'{spec}' cannot be called without arguments: {error}. "
            "Write a function that makes the module and name that."
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"'{spec}' returned {kind_of(module)}; wanted a torch.nn.Module.")
    if weights is not None:
        load_weights(module, weights)
    return module.eval()


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Copies every tensor of a file into the module; the names must be the same.

    BatchNorm's num_batches_tracked may be missing: it only counts training steps. Names in a
    checkpoint may have an attribute's ahead of them, as Lightning writes them: "model.conv.weight".

    Args:
        module: that gets them.
        path: safetensors; or .pt, .pth, .ckpt, .bin of torch.save, from which no code is run:
            tensors by name, or a dict that has these as its "state_dict".

    Raises:
        ModelError: unreadable file; missing or unknown names; shapes that differ.
    """
    name = type(module).__name__
    if why := why_no_file(Path(path)):
        raise ModelError(f"weights '{path}': {why}. Give a safetensors file, .pt, .pth or .ckpt.")
    wanted = module.state_dict()
    state = _without_prefix(_read_state(Path(path)), wanted)
    missing = [key for key in wanted if key not in state and not key.endswith(_UNUSED_IN_EVAL)]
    unknown = [key for key in state if key not in wanted]
    if missing or unknown:
        raise ModelError(
            f"weights '{path}' are not those of {name}: {_some('missing', missing)}"
            f"{_some('unknown', unknown)}Are they of another model or version?"
        )
    for key, tensor in state.items():
        if tensor.shape != wanted[key].shape:
            raise ModelError(
                f"weights '{path}': '{key}' has shape {tuple(tensor.shape)}; "
                f"{name} wants {tuple(wanted[key].shape)}."
            )
    module.load_state_dict(state, strict=False)  # strictness is checked above, with better words


def _read_state(path: Path) -> dict[str, Tensor]:
    """Tensors of the file by name."""
    try:
        if path.suffix not in CHECKPOINTS:
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"weights '{path}': cannot be read as safetensors ({error}).") from error
    except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise ModelError(
            f"weights '{path}': cannot be read as tensors alone ({first_line(error)}). Save the "
            "module's state_dict(): torch.save(module.state_dict(), path)."
        ) from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping):
        raise ModelError(
            f"weights '{path}': holds {kind_of(found)}; wanted tensors by name, as of state_dict()."
        )
    return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}


def _without_prefix(state: dict[str, Tensor], wanted: Collection[str]) -> dict[str, Tensor]:
    """The tensors without the attribute that all names begin with, where that makes them known."""
    prefixes = {name.partition(".")[0] + "." for name in state}
    if len(prefixes) != 1 or state.keys() & set(wanted):
        return state
    shorter = {name.removeprefix(min(prefixes)): tensor for name, tensor in state.items()}
    return shorter if shorter.keys() & set(wanted) else state


def _some(what: str, names: list[str]) -> str:
    return f"{what} {listed(names)}. " if names else ""
