from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from onnxq.errors import ModelError
from scripts._fuzz import fields, inside, table, workers
from scripts._fuzz.case import Call, Case, ExitError, Scratch
from scripts._fuzz.inside import Job, Outcome
from scripts._fuzz.kinds import KINDS, numbered
from scripts._fuzz.seed_models import FLOAT, float_model

if TYPE_CHECKING:
    from collections.abc import Callable


SEED = 1
BY_DAY, BY_NIGHTS = 10, 5000  # inputs
PARTS = 20  # 250 inputs, 85 CPU seconds


def died() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def refused() -> None:
    raise ModelError("input 'x' of 3 is wrong.")


def ended_with(code: int) -> Callable[[Scratch], None]:
    def run(_: Scratch) -> None:
        raise ExitError(code, "Error: wrong")

    return run


def fell(_: Scratch) -> None:
    raise KeyError("key")


CALLS: dict[str, tuple[Callable[[Scratch], object], Outcome]] = {
    "nothing": (lambda _: None, Outcome.DONE),
    "a refusal": (lambda _: refused(), Outcome.REFUSED),
    "an exit code that errors.py lists": (ended_with(3), Outcome.REFUSED),
    "another exit code": (ended_with(1), Outcome.TRACEBACK),
    "an exception": (fell, Outcome.TRACEBACK),
    "a signal": (lambda _: died(), Outcome.CRASH),
    "memory": (lambda _: bytearray(9 << 30), Outcome.MEMORY),
    "waiting": (lambda _: time.sleep(60), Outcome.HANG),
    "an output": (lambda s: (s.outputs / "y").write_text(""), Outcome.DONE),
    "a changed input": (lambda s: (s.inputs / "y").write_text(""), Outcome.OUTSIDE),
    "a file where it stands": (lambda s: (s.root / "cwd" / "y").touch(), Outcome.OUTSIDE),
    "a temporary file that stays": (lambda s: (s.root / "tmp" / "y").touch(), Outcome.OUTSIDE),
    "the secret": (lambda s: s.secret.read_bytes(), Outcome.OUTSIDE),
}


def cases(kind: str) -> Callable[[np.random.Generator, Scratch], Case]:
    """Stands in for `inside.make_case`: a call of the table above, or one of two kinds."""
    if kind == "dies alone":
        return lambda _rng, _scratch: Case("one", (Call("call", died),), alone=died)
    if kind == "runs alone":
        return lambda _rng, _scratch: Case("one", (Call("call", refused),), alone=lambda: None)
    run, _ = CALLS[kind]
    return lambda _rng, scratch: Case("one", (Call(kind, lambda: run(scratch)),))


def found(jobs: list[Job], wait_limit_s: float) -> list[workers.Result]:
    """Results of jobs whose kinds are those of `cases`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inside, "make_case", cases)
        patch.setattr(workers, "WAIT_LIMIT_S", wait_limit_s)
        return list(workers.run(jobs, processes=1))


def apart(run: Callable[..., list[workers.Result]], *arguments: object) -> list[workers.Result]:
    """Results of `run` in a process of its own.

    Workers are forked, and a fork takes locks along that threads hold which it leaves behind: other
    tests of this process may have left threads (Dask), and then its children wait for ever.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(run, *arguments).result()


def of_kinds(jobs: list[Job]) -> list[workers.Result]:
    """Results of jobs of the script's own kinds."""
    return list(workers.run(jobs, processes=1))


@pytest.fixture(scope="module")
def results() -> dict[str, workers.Result]:
    jobs = [Job(kind, 0, 0) for kind in (*CALLS, "dies alone", "runs alone")]
    return {result.job.kind: result for result in apart(found, jobs, 1.5)}


@pytest.mark.parametrize("name", CALLS)
def test_outcome_of_a_call_is_known(name: str, results: dict[str, workers.Result]) -> None:
    _, outcome = CALLS[name]
    result = results[name]
    assert [(e.call, e.outcome) for e in result.calls] == [(name, outcome)]
    assert bool(table.failures([result])) is (outcome not in inside.GOOD)


def test_what_onnxruntime_alone_dies_of_is_counted_apart(
    results: dict[str, workers.Result],
) -> None:
    result = results["dies alone"]
    assert result.alone is not None
    assert result.alone.outcome is Outcome.CRASH
    assert not table.failures([result])
    assert "| dies alone | call | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |" in table.lines([result])


def test_refusal_of_what_onnxruntime_runs_is_listed(results: dict[str, workers.Result]) -> None:
    assert "| 1 | call | input '...' of N is wrong |" in table.lines([results["runs alone"]])


def test_a_kinds_cases_do_not_depend_on_the_other_kinds() -> None:
    alone = list(numbered(["models"], 4))
    assert alone == [("models", n) for n in range(4)]
    assert set(numbered(list(KINDS), 3)) >= {("models", 0)}


@pytest.mark.parametrize("name", FLOAT)
def test_a_seed_gives_one_mutation(name: str) -> None:
    model = onnx.load_from_string(float_model(name))
    changed = []
    for _ in range(2):
        copy = onnx.load_from_string(float_model(name))
        words = fields.mutate(copy, np.random.default_rng(5))
        changed.append((words, fields.as_bytes(copy)))
    assert changed[0] == changed[1]
    assert fields.as_bytes(model) == float_model(name)


def test_nothing_that_must_never_happen_does() -> None:
    """Traceback, crash, hang, memory, a file outside."""
    expect_none([Job(kind, number, SEED) for kind, number in numbered(list(KINDS), BY_DAY)])


@pytest.mark.nightly(nights=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_nor_does_it_in_thousands_of_inputs(part: int) -> None:
    """scripts/fuzz.md is the table of all cases."""
    jobs = [Job(kind, number, SEED) for kind, number in numbered(list(KINDS), BY_NIGHTS)]
    expect_none(jobs[part::PARTS])


def expect_none(jobs: list[Job]) -> None:
    """Guards jobs of which none may end as it must not."""
    ended = apart(of_kinds, jobs)
    assert len(ended) == len(jobs)
    assert [
        (r.job.name, r.words, e.call, e.outcome, e.detail) for r, e in table.failures(ended)
    ] == []
