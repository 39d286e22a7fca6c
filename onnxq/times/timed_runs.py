"""Runs of several models for their times: whole and profiled, on one thread, in turns."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from onnxq.core.atomic import temporary_folder
from onnxq.core.saved import Saved
from onnxq.errors import CalibrationError, ModelError
from onnxq.ort.runtime import open_profiled, open_session
from onnxq.ort.turns import Run, Schedule, repeats_of, round_seconds, taken, taking_turns
from onnxq.samples import as_taken, input_specs
from onnxq.samples.excerpt import rows_of
from onnxq.samples.inputs import has_dynamic_batch
from onnxq.samples.state import State
from onnxq.times.profile import node_times, quick_mean, without_writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from onnxq.ort.runtime import Session
    from onnxq.samples import InputSpec
    from onnxq.samples.inputs import Batch
    from onnxq.times.profile import NodeTime

MEASURED_S = 1.0
"""CPU seconds that go into the runs of one measurement of all its models."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 60
MOST_ROUNDS_PROFILED, MOST_PROFILED = 20, 3
"""Rounds with the profiler, and runs with it in a turn: all is written down, and read as JSON."""


def one_row(model: ir.Model, inputs: Sequence[InputSpec], batch: Batch) -> Batch:
    """One sample of a batch, as a model is run where it is used.

    The whole batch where the model has a static one, or does not run on one sample.

    Args:
        model: float.
        inputs: that samples have; zeros stand for state that the batch leaves out.
        batch: to take it of.

    Raises:
        ModelError: ONNX Runtime does not open the model.
    """
    state = State(tuple(inputs), {})
    whole = state.feeds(batch)
    if rows_of(batch) == 1 or not has_dynamic_batch([s for s in inputs if s.name in batch]):
        return whole
    one = state.feeds({name: x[:1] for name, x in batch.items()})
    with open_session(model, threads=1) as session:
        try:
            session.run(as_taken(one, input_specs(model)))
        except CalibrationError:
            return whole
    return one


@dataclass(frozen=True)
class WholeTime(Saved):
    """Time of a model's whole runs over the float model's, one thread, in turns.

    Attributes:
        ratio: median of the ratios of the rounds.
        low, high: interval of 95% for it.
    """

    FORMAT: ClassVar[str] = "onnxq whole time 1"
    NOUN: ClassVar[str] = "a time of whole runs"
    ANEW: ClassVar[str] = "Begin a new journal."

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self:
        """The ratio of the times of two models in the same rounds.

        The median lies between the ratios of ranks n / 2 -+ 0.98 sqrt(n) of n rounds with 95%,
        however they are distributed.
        """
        ratios = np.sort(np.asarray(ours) / np.asarray(theirs))
        low = max(math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))), 0)
        return cls(
            float(np.median(ratios)), float(ratios[low]), float(ratios[len(ratios) - 1 - low])
        )


@dataclass(frozen=True, eq=False)
class Profiled:
    """One model's runs, whole and node by node.

    Attributes:
        optimized: graph that ONNX Runtime runs.
        nodes: name of a node of it -> its time with the profiler on.
        whole_ns: nanoseconds of a run without it.
        rounds_s: CPU seconds of a run without it, in each round.
    """

    optimized: ir.Model
    nodes: Mapping[str, NodeTime]
    whole_ns: float
    rounds_s: tuple[float, ...]

    @property
    def ns(self) -> dict[str, float]:
        """Name of a node -> nanoseconds, without what the profiler takes."""
        return without_writing(self.nodes, self.whole_ns)


def check_runs(model: ir.Model, feeds: Mapping[str, Array]) -> None:
    """Runs a model once.

    Raises:
        ModelError: ONNX Runtime does not open it, or it does not run on these inputs.
    """
    with open_session(model, threads=1) as session:
        try:
            session.run(as_taken(feeds, input_specs(model)))
        except CalibrationError as error:
            raise ModelError(str(error)) from error  # the float model does


def whole_times(models: Sequence[ir.Model], feeds: Mapping[str, Array]) -> list[list[float]]:
    """CPU seconds of a run of each model, in each round.

    Raises:
        ModelError: ONNX Runtime does not open one.
        CalibrationError: one does not run on these inputs.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(open_session(model, threads=1)) for model in models]
        runs = [_run(*each, feeds) for each in zip(opened, models, strict=True)]
        return taking_turns(runs, _scheduled(runs))


def profiled(
    models: Sequence[ir.Model], feeds: Mapping[str, Array], seconds: float | None = None
) -> list[Profiled]:
    """Runs of each model with the profiler and without, all in the same rounds.

    Args:
        models: to run, on one thread.
        feeds: for all of them.
        seconds: CPU seconds that go into all runs; None: MEASURED_S.

    Raises:
        ModelError, CalibrationError: as of `whole_times`.
    """
    with ExitStack() as stack:
        plain = [stack.enter_context(open_session(model, threads=1)) for model in models]
        opened = [open_profiled(model, stack.enter_context(temporary_folder())) for model in models]
        for session, _ in opened:
            stack.enter_context(session)
        sessions = [*plain, *(session for session, _ in opened)]
        runs = [_run(*each, feeds) for each in zip(sessions, [*models, *models], strict=True)]
        planned = _scheduled(runs, seconds)
        few = [min(n, MOST_PROFILED) for n in planned.repeats[len(plain) :]]
        repeats = (*planned.repeats[: len(plain)], *few)
        rounds = min(planned.rounds, MOST_ROUNDS_PROFILED)
        found = taking_turns(runs, Schedule(rounds, repeats))
        return [
            Profiled(graph, node_times(session.end_profile()), 1e9 * quick_mean(each), tuple(each))
            for each, (session, graph) in zip(found, opened, strict=False)
        ]


def _run(session: Session, model: ir.Model, feeds: Mapping[str, Array]) -> Run:
    return partial(session.run, as_taken(feeds, input_specs(model)))


def _scheduled(runs: Sequence[Run], seconds: float | None = None) -> Schedule:
    """The schedule that so many CPU seconds pay for."""
    once = [taken(run) for run in runs for _ in range(2)][1::2]  # the first run gets memory
    repeats = tuple(map(repeats_of, once))
    rounds = int((MEASURED_S if seconds is None else seconds) / round_seconds(once, repeats))
    return Schedule(min(max(rounds, LEAST_ROUNDS), MOST_ROUNDS), repeats)
