"""Versions of ONNX Runtime: the installed one, and the oldest one that onnxq supports."""

from __future__ import annotations

import functools
from importlib import metadata

Version = tuple[int, int]
"""(major, minor): patches of ONNX Runtime change no kernel's and no optimizer's behaviour."""

OLDEST: Version = (1, 23)
"""The oldest ONNX Runtime that a written file has to run on: pyproject.toml's floor."""

PACKAGES = ("onnxruntime", "onnxruntime-gpu")
"""Distributions that bring the module `onnxruntime`."""


@functools.cache
def installed() -> Version:
    """The version of the installed package, read without importing it.

    Raises:
        metadata.PackageNotFoundError: none of PACKAGES is installed.
    """
    found = {str(d.name): d.version for name in PACKAGES for d in metadata.distributions(name=name)}
    if not found:
        raise metadata.PackageNotFoundError(PACKAGES[0])
    major, minor, *_ = next(iter(found.values())).split(".")
    return int(major), int(minor)
