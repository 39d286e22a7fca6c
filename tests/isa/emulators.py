"""Where the emulated machines are, for tests: without them a test is skipped, or fails."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.isa.machines import unpacked

if TYPE_CHECKING:
    from pathlib import Path

REQUIRED = "ONNXQ_REQUIRE_ISA"
MISSING = "the emulated machines are not there: run scripts/setup_isa"


def find_emulators() -> Path:
    """The folder; skips the test without it, and fails it where the machines are required."""
    folder = unpacked()
    if folder is not None:
        return folder
    if os.environ.get(REQUIRED):
        pytest.fail(f"{MISSING} ({REQUIRED} is set)", pytrace=False)
    pytest.skip(MISSING)
