"""Set-up of every test process, and of every test in it."""

from __future__ import annotations

import functools
import gc
import logging
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from filelock import FileLock

from tests import cpu_seconds, nights
from tests.nightly_table import Table

if TYPE_CHECKING:
    from collections.abc import Generator

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

# tests import onnxruntime ahead of onnxq, which would decline it
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if IS_WORKER:  # as many processes as cores: a thread for each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if threading.current_thread() is threading.main_thread():
    # tests send it to the commands that they start; who runs tests in the background ignores it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing is freed while tests are collected, and a collector that looks for it takes a fifth of the
# time; it goes on when all are there.
gc.disable()

# a busy machine takes longer than Hypothesis' 200 ms, which then fails by chance
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

METER = pytest.StashKey[cpu_seconds.Meter]()
TABLE = pytest.StashKey[Table]()
COMPILED = Path(sys.pycache_prefix or ".cache") / "compiled"
"""There since a worker has written the bytecode of all tests and of what they import."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--write-cpu-seconds, --table, --again."""
    parser.addoption(
        "--write-cpu-seconds",
        action="store_true",
        help=f"replace {cpu_seconds.FILE.name}, from which `slow` follows, by what this run costs",
    )
    parser.addoption("--table", type=Path, help="where to write each test's outcome as a table")
    parser.addoption(
        "--again", action="store_true", help="write into the table that is there what had failed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measures where it is asked to, in all processes."""
    if config.getoption("--write-cpu-seconds") or config.getoption("--table"):
        config.stash[METER], config.stash[TABLE] = cpu_seconds.Meter(), Table()
        config.pluginmanager.register(config.stash[METER])
        config.pluginmanager.register(config.stash[TABLE])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Writes what was measured."""
    if IS_WORKER or METER not in config.stash:
        return
    if config.getoption("--write-cpu-seconds"):
        cpu_seconds.write(config.stash[METER].seconds)
    path: Path | None = config.getoption("--table")
    if path is not None:
        table, again = config.stash[TABLE], config.getoption("--again")
        text = table.again(path.read_text(encoding="utf-8")) if again else table.text()
        path.write_text(text, encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Lets one worker compile what all of them import, where there is no bytecode yet.

    To compile torch and to rewrite the tests takes a minute, which each would spend.
    """
    if not IS_WORKER or sys.dont_write_bytecode or COMPILED.exists():
        return (yield)
    COMPILED.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(COMPILED.with_suffix(".lock")):
        if not COMPILED.exists():
            result = yield
            COMPILED.touch()
            return result
    return (yield)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what is slow and what is left for the night; leaves that out unless -m asks for it.

    Of tests whose cases are spread over nights, only those of this night stay (tests/nights.py).

    All cases run of files that are named, and where costs are measured. Workers are given the
    dearest files first, so that none computes alone at the end.
    """
    _look_for_no_constants()
    seconds = cpu_seconds.read()
    if IS_WORKER:
        of_file = cpu_seconds.by_file(seconds)
        items.sort(key=lambda item: -of_file.get(item.nodeid.partition("::")[0], 0.0))
    for item in items:
        if item.get_closest_marker("isa"):
            item.add_marker("nightly")  # an emulated machine is 100 times slower than a real one
        if seconds.get(cpu_seconds.function_of(item.nodeid), 0) > cpu_seconds.SLOW_S:
            item.add_marker("slow")
    if not (_names_files(config) or config.getoption("--write-cpu-seconds")):
        by_day = [item for item in items if not item.get_closest_marker("nightly")]
        left = cpu_seconds.left_for_the_night([item.nodeid for item in by_day], seconds)
        for item in by_day:
            if item.nodeid in left:
                item.add_marker("nightly")
    if re.search(r"(?<!not )\b(nightly|isa)\b", config.getoption("markexpr")):
        parts = {item.nodeid: _nights(item) for item in items}
        left = nights.left_for_other_nights(parts, nights.tonight())
    else:
        left = {item.nodeid for item in items if item.get_closest_marker("nightly")}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def _nights(item: pytest.Item) -> int:
    """Over how many nights the cases of a test are spread; 1: all run in each."""
    mark = item.get_closest_marker("nightly")
    return int(mark.kwargs.get("nights", 1)) if mark else 1


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process, this one, for files that are named and for -s; None: one per core.

    A worker takes seconds until it has imported torch and collected 15,000 tests.
    """
    in_sight = config.getoption("capture") == "no"
    return 0 if in_sight or _names_files(config) else None


def _look_for_no_constants() -> None:
    """Keeps hypothesis from parsing each module for numbers to draw: 1,000 files in each worker."""
    if "hypothesis" in sys.modules:
        from hypothesis.internal.conjecture import providers

        providers._get_local_constants = lambda: providers._local_constants


def _names_files(config: pytest.Config) -> bool:
    files = [Path(argument.split("::")[0]) for argument in config.args]
    return all((config.invocation_params.dir / path).is_file() for path in files)


def pytest_collection_finish() -> None:
    """Makes exports quick, and takes what exists by now out of the way of the garbage collector.

    A full collection looks at every object of torch and of 15,000 tests, and exports set off many.
    No model loses its integers for its time or size: tests ask for integers of tiny models, whose
    times are chance, and which are smaller in float. `judged_here` asks for it. Nor is a model
    improved by default: most tests are of plans, and would take twice as long. `improved_here` asks
    for that.
    """
    if sys.modules.get("torch"):  # tests without it do not wait for its import, or have none
        from tests import export_memo, quick_export

        quick_export.install()
        export_memo.install()
    if IS_WORKER:
        from onnxq.ort import runtime

        runtime._options = functools.partial(_one_thread, runtime._options)
    from onnxq.repair import slower

    slower.is_judged_here = _is_nowhere_judged
    from onnxq.weights import carry_out

    carry_out.DEFAULT = ()
    gc.freeze()
    gc.enable()


def _is_nowhere_judged(target: str, objective: object) -> bool:
    del target, objective
    return False


def _one_thread(options: Any, threads: int | None, optimization: object) -> Any:
    """Session options, with one thread where none is asked for: idle ones spin for 2/5 of a run."""
    return options(threads or 1, optimization)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Seeds torch: the numbers of a test do not depend on those that its process ran before."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture
def judged_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by tests of models that are slower or larger than float."""
    from onnxq.repair import slower

    monkeypatch.setattr(slower, "is_judged_here", lambda _target, _objective: True)


@pytest.fixture
def improved_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by tests of the algorithms that `quantize` has by default."""
    from onnxq.weights import carry_out

    monkeypatch.setattr(carry_out, "DEFAULT", ("auto",))


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


def pytest_runtest_logfinish() -> None:
    """Gives the log back: scripts and benchmarks silence that of their process."""
    logging.disable(logging.NOTSET)
