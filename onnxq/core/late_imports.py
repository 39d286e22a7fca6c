"""Modules that onnx_ir imports at its top and hardly ever needs: imported when it first uses them.

It takes sympy to compute with names of dimensions, `n // 2`, which no step here does: nearly half
of what a quantization of a tiny model took. In their places onnx_ir gets modules that hand on what
is asked for. Nobody else sees these: behind its import, both can be imported as ever.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

IMPORTER = "onnx_ir"
LATE = ("sympy", "onnx_ir._symbolic_shapes")


def put_off() -> None:
    """Puts off the modules of LATE when IMPORTER is imported, if it was not before."""
    is_there = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if IMPORTER not in sys.modules and not is_there:
        sys.meta_path.insert(0, _Finder())


class _Late(ModuleType):
    """A module in place of the one of its name, which is imported for its first attribute."""

    def __getattr__(self, name: str) -> Any:  # whatever the module holds
        _take_away(self)  # of another thread, while IMPORTER is being imported
        return getattr(import_module(self.__name__), name)


def _take_away(module: _Late) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]


class _Finder(MetaPathFinder):
    """Finds IMPORTER where the finders behind it do, for its first import.

    It stays in sys.meta_path: Python goes through that very list, so that an import that is under
    way would pass over a finder if one ahead of it were taken out.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        if fullname != IMPORTER or IMPORTER in sys.modules or self not in finders:
            return None
        for finder in finders[finders.index(self) + 1 :]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    """Loads IMPORTER as its own loader does, with other modules in the places of LATE."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # whatever else its loader tells: source, resources
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        late = [_Late(name) for name in LATE if name not in sys.modules]
        sys.modules.update({each.__name__: each for each in late})
        try:
            self._loader.exec_module(module)
        finally:
            for each in late:
                _take_away(each)
