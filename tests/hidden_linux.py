"""A plugin of pytest that hides what other systems lack: fcntl, resource, /proc, and torch in CI.

    python -m pytest -p tests.hidden_linux tests/core

What was imported or opened before is not hidden.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

MODULES = ("fcntl", "resource", "grp", "pwd", "torch")
OPENING = ((os, "stat"), (os, "lstat"), (os, "readlink"), (io, "open"))


def hide() -> None:
    """Hides them in this process, for good."""
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # whose import fails
    for module, name in OPENING:
        setattr(module, name, without_proc(getattr(module, name)))


def without_proc(function: Any) -> Any:
    """The function, for which nothing under /proc is there."""

    def elsewhere(path: Any, *args: Any, **options: Any) -> Any:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(2, "hidden", str(path))
        return function(path, *args, **options)

    return elsewhere


def pytest_configure() -> None:
    """Hides them before tests are collected."""
    hide()
