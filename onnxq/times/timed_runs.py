"""Runs of several models for their times: whole and profiled, on one thread, in turns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from onnxq.core.arrays import Array
from onnxq.core.atomic import temporary_folder
from onnxq.core.saved import Saved
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.annotations import as_written
from onnxq.graph.folded import as_given
from onnxq.ort.runtime import Session, open_profiled, open_session
from onnxq.ort.turns import Run, Schedule, taken, taking_turns
from onnxq.samples import InputSpec, as_taken, input_specs
from onnxq.samples.excerpt import rows_of
from onnxq.samples.inputs import Batch, has_dynamic_batch
from onnxq.samples.state import State

MEASURED_S = 1.0
"""CPU seconds that go into the runs of one measurement of all its models."""
LEAST_ROUNDS, LEAST_IN_PAIR, MOST_ROUNDS = 5, 2, 60
SESSION_PAIRS = 6
"""Pairs of sessions that a speed is measured in. Two sessions of one model differ by some percent,
and of thousands of small nodes the one that is opened second is faster by up to half: pairs are
opened in the order A B, B A, B A, A B, A B, B A. Of equal models all six favour the same one in 3%
of measurements, however sessions are distributed; four would in 12%."""
T95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}
"""Degrees of freedom -> Student's t for an interval of 95%."""
MOST_ROUNDS_PROFILED, MOST_PROFILED = 20, 3
"""Rounds with the profiler, and runs with it in a turn: all is written down, and read as JSON."""


def one_row(model: ir.Model, inputs: Sequence[InputSpec], batch: Batch) -> Batch:
    """One sample of a batch, as a model is run where it is used.

    The whole batch where the model has a static one, or does not run on one sample.
    """
    state = State(tuple(inputs), {})
    whole = state.feeds(batch)
    if rows_of(batch) == 1 or not has_dynamic_batch([s for s in inputs if s.name in batch]):
        return whole
    one = state.feeds({name: x[:1] for name, x in batch.items()})
    with open_session(model, threads=1) as session:
        return one if runs_on(session, as_taken(one, input_specs(model))) else whole


def runs_on(session: Session, feeds: Mapping[str, Array]) -> bool:
    """Whether a session runs on these inputs."""
    try:
        session.run(feeds)
    except CalibrationError:
        return False
    return True


@dataclass(frozen=True)
class WholeTime(Saved):
    """Time of a model's whole runs over the float model's, one thread, in turns."""

    FORMAT: ClassVar[str] = "onnxq whole time 1"
    NOUN: ClassVar[str] = "a time of whole runs"
    ANEW: ClassVar[str] = "Begin a new journal."

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: ArrayLike, theirs: ArrayLike) -> Self:
        """The ratio of the times of two models in the same rounds of the same sessions.

        The median lies between the ratios of ranks n / 2 -+ 0.98 sqrt(n) of n rounds with 95%,
        however they are distributed.
        """
        ratios = np.sort(np.asarray(ours) / np.asarray(theirs))
        low = max(math.floor(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))), 0)
        return cls(
            float(np.median(ratios)), float(ratios[low]), float(ratios[len(ratios) - 1 - low])
        )

    @classmethod
    def of_sessions(cls, pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Self:
        """The ratio of the times of two models in pairs of sessions.

            r_k   = log(median(ours_k / theirs_k)),  k = 1 .. n
            ratio = exp(mean(r)),  interval = exp(mean(r) -+ t(n - 1) std(r) / sqrt(n))

        The interval holds every r_k, for sessions differ by more than rounds do, and that of `of`
        over all rounds.
        """
        ours, theirs = ([np.asarray(each) for each in side] for side in zip(*pairs, strict=True))
        logs = np.log([np.median(x / y) for x, y in zip(ours, theirs, strict=True)])
        rounds = cls.of(np.concatenate(ours), np.concatenate(theirs))
        if len(logs) < 2:
            return rounds
        spread = T95[len(logs) - 1] * float(logs.std(ddof=1)) / math.sqrt(len(logs))
        mean = float(logs.mean())
        return cls(
            math.exp(mean),
            min(math.exp(min(mean - spread, *logs)), rounds.low),
            max(math.exp(max(mean + spread, *logs)), rounds.high),
        )


@dataclass(frozen=True, eq=False)
class Profiled:
    """One model's runs, whole and node by node.

    Attributes:
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


def paired_sessions(
    openers: tuple[Callable[[], Session], Callable[[], Session]],
    feeds: tuple[Mapping[str, Array], Mapping[str, Array]],
    rounds: int | None = None,
    seconds: float | None = None,
) -> list[tuple[list[float], list[float]]]:
    """CPU seconds of a run of each of two models, in each round of each pair of sessions.

    `openers`: give a session with one thread of either.
    `rounds`: in all pairs together, at least one in each; None: what `seconds` pay for.
    `seconds`: CPU seconds that go into all runs; None: twice MEASURED_S.
    """
    count = SESSION_PAIRS if rounds is None else max(1, min(SESSION_PAIRS, rounds))
    share = (2 * MEASURED_S if seconds is None else seconds) / count
    found, schedule = [], None
    for pair in range(count):
        order = (0, 1) if pair % 4 in (0, 3) else (1, 0)
        with ExitStack() as stack:
            opened = {place: stack.enter_context(openers[place]()) for place in order}
            runs = [partial(opened[place].run, feeds[place]) for place in (0, 1)]
            once = _once(runs)
            if schedule is None:
                schedule = Schedule.within(share, once, LEAST_IN_PAIR, MOST_ROUNDS)
            if rounds is not None:
                schedule = replace(schedule, rounds=-(-rounds // count))
            ours, theirs = taking_turns(runs, schedule)
            found.append((ours, theirs))
    return found


def time_beside_float(
    source: ir.Model,
    model: ir.Model,
    feeds: Mapping[str, Array],
    seconds: float,
    file: Path | None = None,
) -> WholeTime:
    """Time of a model over its float model's, of whole runs in pairs of sessions.

    `file` is run in the float model's place. Else weights that the float model stores in fewer bits
    are so there: ONNX Runtime multiplies some.
    """
    models = (as_written(model), file or as_given(source))
    ours, theirs = (partial(open_session, each, threads=1) for each in models)
    fed = as_taken(feeds, input_specs(model)), as_taken(feeds, input_specs(source))
    return WholeTime.of_sessions(paired_sessions((ours, theirs), fed, seconds=seconds))


def check_runs(model: ir.Model, feeds: Mapping[str, Array]) -> None:
    """Runs a model once."""
    with open_session(model, threads=1) as session:
        try:
            session.run(as_taken(feeds, input_specs(model)))
        except CalibrationError as error:
            raise ModelError(str(error)) from error  # the float model does


def profiled(
    models: Sequence[ir.Model], feeds: Mapping[str, Array], seconds: float | None = None
) -> list[Profiled]:
    """Runs of each model with the profiler and without, all in the same rounds."""
    with ExitStack() as stack:
        plain = [stack.enter_context(open_session(model, threads=1)) for model in models]
        opened = [open_profiled(model, stack.enter_context(temporary_folder())) for model in models]
        for session, _ in opened:
            stack.enter_context(session)
        sessions = [*plain, *(session for session, _ in opened)]
        runs = [
            partial(session.run, as_taken(feeds, input_specs(model)))
            for session, model in zip(sessions, [*models, *models], strict=True)
        ]
        measured_s = MEASURED_S if seconds is None else seconds
        planned = Schedule.within(measured_s, _once(runs), LEAST_ROUNDS, MOST_ROUNDS)
        few = [min(n, MOST_PROFILED) for n in planned.repeats[len(plain) :]]
        repeats = (*planned.repeats[: len(plain)], *few)
        rounds = min(planned.rounds, MOST_ROUNDS_PROFILED)
        found = taking_turns(runs, Schedule(rounds, repeats))
        return [
            Profiled(graph, node_times(session.end_profile()), 1e9 * quick_mean(each), tuple(each))
            for each, (session, graph) in zip(found, opened, strict=False)
        ]


def _once(runs: Sequence[Run]) -> list[float]:
    """CPU seconds of the second run of each; the first one gets memory."""
    return [taken(run) for run in runs for _ in range(2)][1::2]


# --- Times of the nodes of ONNX Runtime's optimized graph, as its own profiler writes them down
#
# Its clock tells whole microseconds, rounded down: the mean over runs tells more than that, and
# half a microsecond is added. What else the machine does only ever adds time: the mean is of the
# quickest quarter. Writing times down takes time itself, the same for every call of a node, and
# most of that is counted as the node's: 3 us on a Xeon, of nodes that take 5. Where a Loop or an If
# calls it, the rest is counted as the caller's: 2 to 4 us of each call. `without_writing` takes
# both off.


ENDING = "_kernel_time"
ROUNDED_NS = 500.0
"""Nanoseconds that whole microseconds lack, on average."""
LEAST_NS = 1.0
"""Nanoseconds of a node that takes no time but to be written down; it runs, which 0 would deny."""
WARM_UP = 2
"""Runs at the head that are left out: they get memory."""


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of a node in one run, as the profiler counts it.

    Attributes:
        ns: nanoseconds of all its calls together, without those of the nodes in its body.
        written: times that something was written down meanwhile: once for each of its calls, and
            of the calls that its body makes.
    """

    ns: float
    written: int = 1


def node_times(profile: Path) -> dict[str, NodeTime]:
    """Name of a node -> its time in one run behind the first WARM_UP."""
    try:
        runs = _runs(json.loads(profile.read_text("utf-8")))[WARM_UP:]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"ONNX Runtime's profile '{profile}' cannot be read: {error}.") from error
    if not runs:
        raise ModelError(f"ONNX Runtime's profile '{profile}' has no run beyond the first ones.")
    names = dict.fromkeys(name for run in runs for name in run)
    none = NodeTime(0.0, 0)
    found = {name: [run.get(name, none) for run in runs] for name in names}
    return {
        name: NodeTime(quick_mean([t.ns for t in times]), max(t.written for t in times))
        for name, times in found.items()
    }


def _runs(events: list[dict[str, object]]) -> list[dict[str, NodeTime]]:
    """Node -> its time, of each run; a run's own event comes behind those of its nodes."""
    runs: list[dict[str, NodeTime]] = []
    current: dict[str, NodeTime] = {}
    ended: list[_Call] = []
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(ENDING):
            call = _Call(float(str(event["ts"])), float(str(event["dur"])))
            inside = _inside(call, ended)
            took = call.ns - sum(each.ns for each in inside)
            node = name.removesuffix(ENDING)
            before = current.get(node, NodeTime(0.0, 0))
            written = before.written + 1 + len(inside)
            current[node] = NodeTime(before.ns + max(took, LEAST_NS), written)
        elif name == "model_run":
            runs.append(current)
            current, ended = {}, []
    return runs


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a node: when it began, and how long it took, in whole microseconds."""

    begin: float
    took: float

    @property
    def ns(self) -> float:
        return self.took * 1e3 + ROUNDED_NS


def _inside(call: _Call, ended: list[_Call]) -> list[_Call]:
    """Calls that a call makes itself, out of its body; it takes their place among those that ended.

    Calls in the body of an If or a Loop end before it does, and begin no earlier. One that ended by
    then is a neighbour's.
    """
    inside = []
    while ended and ended[-1].begin >= call.begin and ended[-1].begin + ended[-1].took > call.begin:
        inside.append(ended.pop())
    ended.append(call)
    return inside


def quick_mean(values: Sequence[float]) -> float:
    """Mean of the quickest quarter of the values, of two at least."""
    ordered = np.sort(np.asarray(values, np.float64))
    return float(ordered[: max(len(ordered) // 4, 2)].mean())


def without_writing(times: Mapping[str, NodeTime], whole_ns: float) -> dict[str, float]:
    """Nanoseconds of nodes without what writing each call down takes.

        ns - written * c, at least LEAST_NS, with c such that their sum is that of whole runs

    Nodes whose sum is below that of whole runs are left as they are.
    """
    by_share = sorted(times.values(), key=lambda time: time.ns / time.written)
    ns, written = sum(time.ns for time in by_share), sum(time.written for time in by_share)
    writing = 0.0  # c
    for time in by_share:  # the shortest fall to nothing first
        writing = max((ns - whole_ns) / written, 0.0)
        if time.ns / time.written > writing:
            break
        ns, written = ns - time.ns, written - time.written
    return {name: max(t.ns - t.written * writing, LEAST_NS) for name, t in times.items()}
