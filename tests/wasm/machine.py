"""ONNX Runtime's WebAssembly in Node as a machine that runs a folder of cases."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.isa.machines import ROOT, Machine

RUNNER = Path(__file__).with_name("run_cases.mjs")
REQUIRED = "ONNXQ_REQUIRE_WASM"
NO_NODE = "there is no node: install Node 20 or newer"
NOT_INSTALLED = "onnxruntime-web is not there: run scripts/setup_wasm"


class InNode(Machine):
    """onnxruntime-web in Node, on one thread."""

    def command(self, folder: Path) -> list[str]:
        """Node with the runner; `folder` is where scripts/setup_wasm installed."""
        return ["node", str(RUNNER), str(folder)]


WASM = InNode("wasm", "wasm")


def find_modules() -> Path:
    """The folder of onnxruntime-web; skips the test without it, fails it where it is required."""
    folder = Path(os.environ.get("ONNXQ_WASM") or ROOT / ".cache" / "wasm")
    missing = "" if (folder / "stamp").is_file() else NOT_INSTALLED
    if shutil.which("node") is None:
        missing = NO_NODE
    if missing and os.environ.get(REQUIRED):
        pytest.fail(f"{missing} ({REQUIRED} is set)", pytrace=False)
    if missing:
        pytest.skip(missing)
    return folder
