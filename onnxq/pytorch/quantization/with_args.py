"""Makers of modules: a class with arguments, as `with_args` gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class WithArgs:
    """A class and keyword arguments: calling it makes the module.

    Two of the same class and arguments are equal. What a QConfig holds is one of these, or a class.

    Attributes:
        func: what is called.
        keywords: with these arguments.
    """

    func: Callable[..., Any]
    keywords: dict[str, Any] = field(default_factory=dict)

    def __call__(self, **more: Any) -> Any:
        """The module that the class makes of the arguments."""
        return self.func(**{**self.keywords, **more})

    def with_args(self, **more: Any) -> WithArgs:
        """A maker with some arguments replaced."""
        return WithArgs(self.func, {**self.keywords, **more})

    def __hash__(self) -> int:
        return hash((self.func, tuple(sorted(self.keywords))))

    def __repr__(self) -> str:
        name = getattr(self.func, "__name__", repr(self.func))
        return f"{name}({', '.join(f'{k}={v}' for k, v in self.keywords.items())})"
