"""CPU time of ONNX Runtime on one thread; what is compared takes turns in every round."""

from __future__ import annotations

import functools
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

from scripts._graphs import proto_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt
    import onnx
    import onnx_ir as ir

    Runs = Mapping[str, Callable[[], object]]
    Sessions = Mapping[str, onnxruntime.InferenceSession]

NOT_SLOWER = 1.03  # a median up to this is no slower than float
TIME_S = 0.002  # of one variant in one round, at least
MOST_IN_TURN = 20  # runs of one variant in one round


def one_thread() -> onnxruntime.SessionOptions:
    """Options of a session with one thread and full optimization, which writes no log."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def session(
    model: onnx.ModelProto | ir.Model | Path, options: onnxruntime.SessionOptions | None = None
) -> onnxruntime.InferenceSession:
    """The model on the CPU, with these options or those of `one_thread`."""
    source = str(model) if isinstance(model, Path) else proto_of(model).SerializeToString()
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(source, options or one_thread(), providers=providers)


def taking_turns(
    runs: Runs, rounds: int, least_s: float = TIME_S
) -> dict[str, npt.NDArray[np.float64]]:
    """{name: CPU seconds of one run, in each round}, of this thread.

    Args:
        runs: all are repeated as often in a round, until the fastest takes `least_s`.
        rounds: every second one goes through the runs backwards.
        least_s: of one of the runs in one round.
    """
    repeat = 1  # as often as the fastest wants: one that runs alone would find warm caches, else
    for run in runs.values():
        run()
        start = time.thread_time()
        run()
        wanted = round(least_s / max(time.thread_time() - start, 1e-6))
        repeat = max(repeat, min(wanted, MOST_IN_TURN))
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for turn in range(rounds):
        for name in order if turn % 2 else reversed(order):
            start = time.thread_time()
            for _ in range(repeat):
                runs[name]()
            times[name].append((time.thread_time() - start) / repeat)
    return {name: np.array(each) for name, each in times.items()}


def ratios(
    sessions: Sessions, x: npt.NDArray[np.float32], rounds: int, least_s: float = TIME_S
) -> dict[str, dict[str, float]]:
    """{a: {b: median of time of b / time of a}}; "" of every a holds its least time in seconds."""
    times = taking_turns(runs_on(sessions, {"x": x}), rounds, least_s)
    return {
        a: {"": float(mine.min())}
        | {b: float(np.median(theirs / mine)) for b, theirs in times.items()}
        for a, mine in times.items()
    }


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median of the ratios of two runs' times in the same rounds, and its interval of 95%."""

    median: float
    low: float
    high: float

    @property
    def is_slower(self) -> bool:
        """Whether the first run is slower than the second beyond doubt and by more than 3%."""
        return self.median > NOT_SLOWER and self.low > 1

    @property
    def cell(self) -> list[float]:
        """The three numbers, as tables of results store them."""
        return [self.median, self.low, self.high]

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


def ratio_of(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> Ratio:
    """Time of `ours` over that of `theirs`; they take turns, so that both find the same caches."""
    times = taking_turns({"ours": ours, "theirs": theirs}, rounds)
    return paired_ratio(times["ours"], times["theirs"])


def paired_ratio(ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]) -> Ratio:
    """Ratio of `ours` over `theirs`, of the same rounds each.

    With 95%, the median lies between the ratios of ranks n / 2 -+ 0.98 sqrt(n) of n rounds, however
    they are distributed (the binomial distribution, taken as a normal one).
    """
    each = np.sort(ours / theirs)
    reach = 0.98 * math.sqrt(len(each))
    low = max(math.floor(len(each) / 2 - reach), 0)
    return Ratio(float(np.median(each)), float(each[low]), float(each[len(each) - 1 - low]))


def runs_on(sessions: Sessions, feeds: Mapping[str, npt.NDArray[np.generic]]) -> Runs:
    """Every session's run on the same inputs."""
    return {name: functools.partial(each.run, None, feeds) for name, each in sessions.items()}


def median_seconds(runs: Runs, rounds: int) -> dict[str, float]:
    """{name: median of the process's CPU seconds}, after a round to warm up.

    Args:
        runs: each runs once in a round.
        rounds: behind the first one, which warms up.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if turn:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(each) for name, each in times.items()}
