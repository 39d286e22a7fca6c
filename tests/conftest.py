"""What every test process does once, and before every test."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: a thread for each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process, this one, for files that are named and for -s; None: one per core.

    A worker takes seconds until it has imported torch and collected 15,000 tests.
    """
    files = [Path(argument.split("::")[0]) for argument in config.args]
    in_sight = config.getoption("capture") == "no"
    return 0 if in_sight or all(path.is_file() for path in files) else None


def pytest_collection_finish() -> None:
    """Makes exports quick, and takes what exists by now out of the way of the garbage collector.

    A full collection looks at every object of torch and of 15,000 tests, and exports set off many.
    """
    if "torch" in sys.modules:  # tests without it do not wait for its import
        from tests import export_memo, quick_export

        quick_export.install()
        export_memo.install()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Seeds torch: the numbers of a test do not depend on those that its process ran before."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def exports_anew() -> None:
    """Asked for by tests whose claim is about tracing itself: nothing is taken from a memo."""


@pytest.fixture(autouse=True)
def _export_memo(request: pytest.FixtureRequest) -> None:
    """No memo in tests that patch code, or that read what the exporter says."""
    found = sys.modules.get("tests.export_memo")
    if found is not None:
        others = {"exports_anew", "monkeypatch", "caplog", "capsys", "recwarn"}
        found.memo.paused = bool(others & set(request.fixturenames))
