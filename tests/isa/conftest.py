"""The emulated machines, and what each of them computed: one process per machine and module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.isa.emulators import find_emulators
from tests.isa.machines import Machine, Results, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def emulators() -> Path:
    """Where they are; skips without them, and fails where they are required."""
    return find_emulators()


@pytest.fixture(scope="session")
def run_on(
    emulators: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Machine, Path], Results]:
    """Runs a folder of cases on a machine; the second time, what the first one gave."""
    done: dict[tuple[Machine, Path], Results | AssertionError] = {}

    def results(machine: Machine, cases: Path) -> Results:
        key = (machine, cases)
        if key not in done:
            folder = tmp_path_factory.mktemp(f"{machine}-{cases.name}") / "results"
            try:
                done[key] = run(machine, emulators, cases, folder)
            except AssertionError as error:  # every test of it fails by this, at once
                done[key] = error
        found = done[key]
        if isinstance(found, AssertionError):
            raise found
        return found

    return results
