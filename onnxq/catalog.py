"""Finds operators: every file of onnxq.operators, and those that other packages bring.

Another package adds operators through the entry point group `onnxq.operators`: each entry names a
module that registers some when it is imported.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from importlib import metadata

from onnxq import operators
from onnxq.errors import UnsupportedError
from onnxq.operator import Operator, registry

ENTRY_POINTS = "onnxq.operators"
ALIASES = {"ai.onnx": ""}  # ONNX: two names of the default domain


def find(op_type: str, domain: str = "") -> Operator | None:
    """The operator of that name, or None where onnxq has no integer form of it."""
    _load()
    return registry.get((ALIASES.get(domain, domain), op_type))


def all_operators() -> tuple[Operator, ...]:
    """Every known operator, sorted by domain and name."""
    _load()
    return tuple(registry[key] for key in sorted(registry))


@functools.cache
def _load() -> None:
    """Imports every operator file once; private files come along with those that need them.

    Raises:
        UnsupportedError: an installed package's entry point cannot be imported.
    """
    for module in pkgutil.iter_modules(operators.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{operators.__name__}.{module.name}")
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:  # whatever importing it raises
            raise UnsupportedError(
                f"entry point '{entry.name}' ({entry.value}) in group {ENTRY_POINTS}: {error}; "
                "repair or uninstall the package that brings it."
            ) from error
