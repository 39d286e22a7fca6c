"""The Python in docs/guides/importers.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.torch_ao_models import engine

DOCS = Path(__file__).resolve().parents[3] / "docs" / "guides" / "importers.md"

pytestmark = pytest.mark.oracle


def test_python_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, object] = {}
    with engine("x86"):
        for block in blocks:
            exec(compile(block, DOCS.name, "exec"), names)
