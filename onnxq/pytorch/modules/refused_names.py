"""Documented names of torch that have no counterpart here: using one says what to use in its place.

Importing such a name works, so that a script that names it and goes another way runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from onnxq.errors import UnsupportedError


@dataclass(frozen=True)
class RefusedName:
    """A name that is refused where it is called, subclassed, or asked for an attribute."""

    name: str
    remedy: str

    def refuse(self) -> NoReturn:
        """Says what to use."""
        raise UnsupportedError(f"{self.name} is not there. {self.remedy}")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuses, as a function or a class of that name would be used."""
        self.refuse()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)  # copy, pickle and inspect ask for what may be missing
        self.refuse()

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        self.refuse()

    def __instancecheck__(self, instance: object) -> bool:
        return False


def refusing(namespace: str, remedies: Mapping[str, str]) -> Callable[[str], RefusedName]:
    """The `__getattr__` of a module that refuses these names, and has no others."""

    def of(name: str) -> RefusedName:
        if name not in remedies:
            raise AttributeError(f"module '{namespace}' has no attribute '{name}'")
        return RefusedName(f"{namespace}.{name}", remedies[name])

    return of
