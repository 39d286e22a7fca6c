"""onnxruntime-web, and what it computed of a folder of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.isa.machines import Results, run
from tests.wasm.machine import WASM, find_modules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def modules() -> Path:
    """Where it is; skips without it, and fails where it is required."""
    return find_modules()


@pytest.fixture(scope="session")
def run_in_node(
    modules: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Results]:
    """Runs a folder of cases in Node; the second time, what the first one gave."""
    done: dict[Path, Results] = {}

    def results(cases: Path) -> Results:
        if cases not in done:
            done[cases] = run(WASM, modules, cases, tmp_path_factory.mktemp("wasm") / "results")
        return done[cases]

    return results
