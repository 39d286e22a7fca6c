"""Versions of ONNX Runtime: the installed one, and the oldest one that onnxq supports."""

import contextlib
import functools
from importlib import metadata

Version = tuple[int, int]
"""(major, minor): patches of ONNX Runtime change no kernel's and no optimizer's behaviour."""

OLDEST: Version = (1, 29)
"""The oldest ONNX Runtime that a written file has to run on: pyproject.toml's floor. 1.28 and older
compute other int8 integers in a wide QLinearSoftmax than later ones do
(scripts/test_versions.md)."""

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml")
"""Distributions that bring the module `onnxruntime`."""


@functools.cache
def distribution() -> tuple[str, str]:
    """(name, version) of the installed distribution, read without importing it; or "unknown"."""
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return name, metadata.version(name)
    return PACKAGES[0], "unknown"


def installed() -> Version:
    """The installed version, read without importing it; OLDEST where no distribution tells it."""
    major, *rest = distribution()[1].split(".")
    if rest:
        return int(major), int(rest[0])
    return OLDEST
