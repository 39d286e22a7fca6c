"""One case inside a worker process: its calls, and what came of each."""

from __future__ import annotations

import enum
import gc
import os
import resource
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxq import errors
from scripts._confined import confine, place_of
from scripts._fuzz import probed
from scripts._fuzz.case import ExitError
from scripts._fuzz.kinds import make_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from scripts._fuzz.case import Call, Case, Scratch

LIMIT_BYTES = 2 << 30
"""Resident memory of a worker."""
CLAIM_BYTES = 8 << 30
"""Memory that it may reserve; threads and sessions reserve more than they use."""
WRONG_USAGE = 2  # click's own code
REFUSALS = frozenset(
    [WRONG_USAGE]
    + [
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.OnnxqError)
    ]
) - {errors.OnnxqError.exit_code}
"""Exit codes of a refusal that says why; any other is one that nobody thought of."""


class Outcome(enum.Enum):
    """How a call ended."""

    DONE = "done"
    REFUSED = "refused"
    TRACEBACK = "traceback"
    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"
    OUTSIDE = "outside"


GOOD = (Outcome.DONE, Outcome.REFUSED)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended.

    Attributes:
        call: its name.
        outcome: how.
        detail: the message of a refusal; the exception and its place; the file; the signal.
    """

    call: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A case that a worker is to run.

    Attributes:
        kind, number: which one.
        seed: of the run.
        alone: only the input on ONNX Runtime, without onnxq.
    """

    kind: str
    number: int
    seed: int
    alone: bool = False

    @property
    def name(self) -> str:
        """For --case."""
        return f"{self.kind}:{self.number}"


Message = str | Ended | None
"""News from a worker: the case's words, then the name of each call and how it ended; last None."""


def serve(connection: Connection) -> None:
    """Runs the jobs that come, until None comes."""
    confine(CLAIM_BYTES)
    watch = probed.Watch()
    while (job := connection.recv()) is not None:
        with tempfile.TemporaryDirectory(prefix="onnxq-fuzz-") as folder:
            run(job, Path(folder), watch, connection.send)
        connection.send(None)


def run(job: Job, folder: Path, watch: probed.Watch, tell: Callable[[Message], object]) -> None:
    """Runs the calls of a case and tells of each; `tell` gets its words first."""
    scratch = probed.make(folder / "case")
    rng = np.random.default_rng([job.seed, job.number, *job.kind.encode()])
    try:
        case = make_case(job.kind)(rng, scratch)
    except Exception as error:  # a mistake in scripts/_fuzz: shown like one of onnxq
        tell("no case")
        tell(Ended("making the case", Outcome.TRACEBACK, place_of(error)))
        return
    tell(case.words)
    back = Path.cwd()
    os.chdir(scratch.root / "cwd")
    tempfile.tempdir = str(scratch.root / "tmp")
    try:
        if not job.alone:
            ended = [_call(call, scratch, watch, tell) for call in case.calls]
            if all(e.outcome is Outcome.DONE for e in ended):
                return
        _alone(case, tell)
    finally:
        os.chdir(back)
        tempfile.tempdir = None
        for name in ("in", "outside"):  # FIFOs and links: by name, never opened
            shutil.rmtree(scratch.root / name, ignore_errors=True)


ALONE = "ONNX Runtime alone"


def _alone(case: Case, tell: Callable[[Message], object]) -> None:
    if case.alone is None:
        return
    tell(ALONE)
    try:
        case.alone()
    except Exception as error:  # whatever ONNX Runtime says
        tell(Ended(ALONE, Outcome.REFUSED, str(error).split("\n")[0][:200]))
    else:
        tell(Ended(ALONE, Outcome.DONE))


def _call(
    call: Call, scratch: Scratch, watch: probed.Watch, tell: Callable[[Message], object]
) -> Ended:
    tell(call.name)
    before = probed.listing(scratch)
    watch.begin(scratch)
    outcome, detail = outcome_of(call)
    heard = watch.end() + probed.changed(before, probed.listing(scratch))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > LIMIT_BYTES and outcome in GOOD:
        outcome, detail = Outcome.MEMORY, f"{peak / 2**30:.1f} GiB"
    elif heard and outcome in GOOD:
        outcome, detail = Outcome.OUTSIDE, "; ".join(heard)
    gc.collect()  # sessions and mapped files of this call
    ended = Ended(call.name, outcome, detail)
    tell(ended)
    return ended


def outcome_of(call: Call) -> tuple[Outcome, str]:
    """How a call ends, as far as this process lives to tell."""
    try:
        call.run()
    except ExitError as error:
        if error.code in REFUSALS:
            return Outcome.REFUSED, error.message
        return Outcome.TRACEBACK, f"exit code {error.code}: {error.message.strip()[-300:]}"
    except errors.OnnxqError as error:
        return Outcome.REFUSED, str(error)
    except MemoryError as error:
        return Outcome.MEMORY, place_of(error)
    except Exception as error:  # what is looked for
        return Outcome.TRACEBACK, place_of(error)
    return Outcome.DONE, ""
