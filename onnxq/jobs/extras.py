"""Packages that only some clusters need: the extras of onnxq."""

from __future__ import annotations

import importlib
from typing import Any

from onnxq.errors import UnsupportedError


def imported(module: str, extra: str) -> Any:
    """The module that an extra brings.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"'{module}' cannot be imported ({error}). Install it: pip install 'onnxq[{extra}]'."
        ) from error
