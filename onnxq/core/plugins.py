"""Loads what other packages and a person's own files add: operators, data types, observers.

    entry points   group `onnxq.operators` of installed packages; each names a module
    ONNXQ_PLUGINS  environment variable: modules that can be imported, separated by commas

Importing such a module is all that happens to it: it registers what it defines (`register`,
`register_integer`, `register_qdtype`; an Observer by being defined). That is done when the catalog
is first asked for an operator, or a name of a type or observer is not known.
"""

import functools
import importlib
import os
import threading
from collections.abc import Callable
from importlib import metadata

from onnxq.errors import UnsupportedError

ENTRY_POINTS = "onnxq.operators"
VARIABLE = "ONNXQ_PLUGINS"

_lock = threading.RLock()  # a plugin may look up, while it is imported, what it registers itself
_loaded: set[str] = set()


def load() -> None:
    """Imports every plugin, each once.

    Raises:
        UnsupportedError: one cannot be imported; names it. The next call tries it again.
    """
    with _lock:
        for entry in _entry_points():
            where = f"entry point '{entry.name}' ({entry.value}) in group {ENTRY_POINTS}"
            remedy = "repair or uninstall the package that brings it"
            _import_once(entry.value, entry.load, f"{where}: {{}}; {remedy}.")
        for name in _own_modules():
            run = functools.partial(importlib.import_module, name)
            where = f"module '{name}' of the environment variable {VARIABLE}"
            remedy = "repair it, or put the folder that it is in on PYTHONPATH"
            _import_once(name, run, f"{where}: {{}}; {remedy}.")


def are_there() -> bool:
    """Whether any plugin is installed or named."""
    return bool(_entry_points() or _own_modules())


def _own_modules() -> list[str]:
    """Names of modules that the environment variable lists."""
    return [*filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(",")))]


@functools.cache
def _entry_points() -> tuple[metadata.EntryPoint, ...]:
    """Entry points of the installed packages; finding them reads every package's list of files."""
    return tuple(metadata.entry_points(group=ENTRY_POINTS))


def _import_once(key: str, run: Callable[[], object], message: str) -> None:
    if key in _loaded:
        return
    _loaded.add(key)  # first: it may ask for a type that it registers further down
    try:
        run()
    except Exception as error:  # whatever importing it raises
        _loaded.discard(key)
        raise UnsupportedError(message.format(error)) from error
