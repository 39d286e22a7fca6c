from __future__ import annotations

import tomllib
from pathlib import Path

import onnxq
from onnxq.core.version import VERSION

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_version_is_that_of_the_package() -> None:
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    assert onnxq.__version__ == VERSION == project["version"]
