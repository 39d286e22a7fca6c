"""Every check that is overlooked in onnxq and operators has its reason beside it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IGNORED = re.compile(r"# (?:type: ignore|noqa)")
REASONED = re.compile(r"# (?:type: ignore|noqa)[^#]*  # \S")


def test_what_is_overlooked_has_a_reason() -> None:
    files = [*(ROOT / "onnxq").rglob("*.py"), *(ROOT / "operators").glob("*.py")]
    bare = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in files
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if IGNORED.search(line) and not REASONED.search(line)
    ]
    assert not bare, "say why behind it: # type: ignore[x]  # reason"
