"""Runs of several models for their times: whole and profiled, on one thread, in turns."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from onnxq.core.atomic import temporary_folder
from onnxq.errors import CalibrationError, ModelError
from onnxq.ort.profile import node_times, quick_mean
from onnxq.ort.runtime import open_profiled, open_session
from onnxq.ort.turns import Run, Schedule, repeats_of, round_seconds, taken, taking_turns
from onnxq.samples import as_taken, input_specs
from onnxq.samples.excerpt import rows_of
from onnxq.samples.inputs import has_dynamic_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Array
    from onnxq.ort.profile import NodeTime
    from onnxq.ort.runtime import Session
    from onnxq.tuning.evaluation.evaluator import Evaluator

MEASURED_S = 1.0
"""CPU seconds that go into the runs of one measurement of all its models."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 60
MOST_ROUNDS_PROFILED, MOST_PROFILED = 20, 3
"""Rounds with the profiler, and runs with it in a turn: all is written down, and read as JSON."""


def one_row(evaluator: Evaluator) -> dict[str, Array]:
    """One sample of the first batch, as a model is run where it is used.

    The whole batch where the model has a static one, or does not run on one sample.
    """
    subject, samples = evaluator.subject, evaluator.samples
    batch = samples.fed(samples.batches[0])
    whole = subject.first_feeds(batch)
    specs = [spec for spec in subject.inputs if spec.name in batch]
    if rows_of(batch) == 1 or not has_dynamic_batch(specs):
        return whole
    one = subject.first_feeds({name: x[:1] for name, x in batch.items()})
    with subject.open_float() as session:
        try:
            session.run(as_taken(one, subject.inputs))
        except CalibrationError:
            return whole
    return one


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


def profiled(models: Sequence[ir.Model], feeds: Mapping[str, Array]) -> list[Profiled]:
    """Runs of each model with the profiler and without, all in the same rounds.

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
        planned = _scheduled(runs)
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


def _scheduled(runs: Sequence[Run]) -> Schedule:
    """The schedule that MEASURED_S pays for."""
    once = [taken(run) for run in runs for _ in range(2)][1::2]  # the first run gets memory
    repeats = tuple(map(repeats_of, once))
    rounds = int(MEASURED_S / round_seconds(once, repeats))
    return Schedule(min(max(rounds, LEAST_ROUNDS), MOST_ROUNDS), repeats)
