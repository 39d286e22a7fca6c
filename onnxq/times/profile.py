"""Times of the nodes of ONNX Runtime's optimized graph, as its own profiler writes them down.

Its clock tells whole microseconds, rounded down: the mean over runs tells more than that, and half
a microsecond is added. What else the machine does only ever adds time: the mean is of the quickest
quarter. Writing times down takes time itself, the same for every call of a node, and most of that
is counted as the node's: 3 us on a Xeon, of nodes that take 5. Where a Loop or an If calls it, the
rest is counted as the caller's: 2 to 4 us of each call. `without_writing` takes both off.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
    """Name of a node -> its time in one run behind the first WARM_UP.

    Args:
        profile: what `Session.end_profile` gives.

    Raises:
        ModelError: the profile is none, or has no run.
    """
    try:
        events = json.loads(profile.read_text("utf-8"))
        runs = _runs(events)[WARM_UP:]
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

    Args:
        call: that ends now.
        ended: those before it, without the ones inside of others.
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

    Args:
        times: name of a node -> its time, with the profiler on.
        whole_ns: nanoseconds of a run without it.
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
