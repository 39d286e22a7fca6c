"""Source text whose imports of torch's quantization are imports of `redirected`, and that package.

    import torch.ao.nn.quantized as nnq    ->  import redirected.nn.quantized as nnq
    from torch.ao.quantization import X    ->  from redirected.quantization import X

A module of `redirected` has the names of the one of that name in onnxq.pytorch, or of the nearest
package above it. A name that onnxq does not have is an Absent: a test that uses it is skipped, and
the name is the reason.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import unittest
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import torch.ao.quantization

from onnxq.pytorch.modules.refused_names import RefusedName

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = "redirected"
ABSENT = "onnxq has no"
HOMES = {"quantization": "onnxq.pytorch.quantization", "nn": "onnxq.pytorch.nn"}
"""Modules of onnxq that stand for torch.ao.quantization and torch.ao.nn."""

OF_TORCH = ("QuantType",)
"""Names that the test files' own helpers use to say which check is meant."""

RENAMED = {"_FusedModule": "FusedModule", "_get_observer_dict": "get_observer_dict"}
"""Names that torch has made private since they were documented."""

_REDIRECTED = (
    (re.compile(r"\btorch\.ao\.(quantization|nn)\b"), rf"{ROOT}.\1"),
    (re.compile(r"\btorch\.quantization\b"), f"{ROOT}.quantization"),
    (re.compile(r"\btorch\.nn\.(quantized|quantizable|qat|intrinsic)\b"), rf"{ROOT}.nn.\1"),
    (re.compile(r"(?<![\w.])nn\.(quantized|quantizable|qat|intrinsic)\b"), rf"{ROOT}.nn.\1"),
    (re.compile(r"\bfrom torch\.ao import (quantization|nn)\b"), rf"from {ROOT} import \1"),
    (re.compile(r"\btorch\.testing\._internal\.common_quantization\b"), "common_quantization"),
)

_PRIVATE = (
    (re.compile(r"self\.assertEqual\(mod\._packed_params\.dtype, dtype\)"), "pass"),
    (re.compile(r"for packed_params in mod\._all_weight_values"), "for packed_params in ()"),
    (re.compile(r"scripted = torch\.jit\.script\(orig_mod\)"), "pass"),
    (re.compile(r"self\._checkScriptable\(orig_mod, scripted, .*\)"), "pass"),
)
"""Assertions of PyTorch's helpers on private attributes and TorchScript, which are left out."""


def redirected(source: str) -> str:
    """The text of a test file with its imports redirected, and `redirected` itself imported."""
    for pattern, replacement in (*_REDIRECTED, *_PRIVATE):
        source = pattern.sub(replacement, source)
    return f"import {ROOT}.quantization\nimport {ROOT}.nn.quantized.dynamic\n{source}"


class Absent(type):
    """A class that stands for a name that onnxq does not have; to use it skips the test."""

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise unittest.SkipTest(f"{ABSENT} {cls.__name__}")

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unittest.SkipTest(f"{ABSENT} {cls.__name__}")


class _Redirected(ModuleType):
    """A module of `redirected`: the names of one of onnxq, and an Absent for every other."""

    __path__: list[str]

    def __setattr__(self, name: str, value: object) -> None:
        """Keeps a function, quantize, where the import of a module of that name would hide it."""
        is_module = isinstance(value, _Redirected)
        if not is_module or not callable(getattr(self, name)) or isinstance(value, Absent):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        home = importlib.import_module(_home(self.__name__))
        own = RENAMED.get(name, name)
        found = getattr(home, own, None)
        if found is not None and not isinstance(found, RefusedName):
            return found
        if name in OF_TORCH:
            return getattr(torch.ao.quantization, name)
        made = Absent(name, (), {})
        setattr(self, name, made)
        return made


def _home(name: str) -> str:
    """The module of onnxq whose names a module of `redirected` has."""
    _, top, *rest = name.split(".")
    for length in range(len(rest), -1, -1):
        found = ".".join((HOMES[top], *rest[:length]))
        try:
            importlib.import_module(found)
        except ModuleNotFoundError as error:
            if error.name is None or not found.startswith(error.name):
                raise
            continue
        return found
    raise ModuleNotFoundError(f"{HOMES[top]} is missing", name=HOMES[top])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every module below `redirected`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] != ROOT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if spec.name == ROOT:
            return ModuleType(ROOT)
        return _Redirected(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def install() -> None:
    """Lets `import redirected...` work in this process."""
    sys.meta_path.insert(0, _Finder())
