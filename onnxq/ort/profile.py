"""Times of the nodes of ONNX Runtime's optimized graph, as its own profiler writes them down.

Its clock tells whole microseconds, rounded down: the mean over runs tells more than that, and half
a microsecond is added. What else the machine does only ever adds time: the mean is of the quickest
quarter. Writing times down takes time itself; `scaled` brings their sum to that of whole runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ENDING = "_kernel_time"
ROUNDED_NS = 500.0
"""Nanoseconds that whole microseconds lack, on average."""
WARM_UP = 2
"""Runs at the head that are left out: they get memory."""


def node_ns(profile: Path, warm_up: int = WARM_UP) -> dict[str, float]:
    """Name of a node -> nanoseconds of one run, all calls of it in that run together.

    Args:
        profile: what `Session.end_profile` gives.
        warm_up: runs that are left out.

    Raises:
        ModelError: the profile is none, or has no run.
    """
    try:
        events = json.loads(profile.read_text("utf-8"))
        runs = _runs(events)[warm_up:]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"ONNX Runtime's profile '{profile}' cannot be read: {error}.") from error
    if not runs:
        raise ModelError(f"ONNX Runtime's profile '{profile}' has no run beyond the first ones.")
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: quick_mean([run.get(name, 0.0) for run in runs]) for name in names}


def _runs(events: list[dict[str, object]]) -> list[dict[str, float]]:
    """Node -> nanoseconds, of each run; a run's own event comes behind those of its nodes."""
    runs: list[dict[str, float]] = []
    current: dict[str, float] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(ENDING):
            took = float(str(event["dur"])) * 1e3 + ROUNDED_NS
            node = name.removesuffix(ENDING)
            current[node] = current.get(node, 0.0) + took
        elif name == "model_run":
            runs.append(current)
            current = {}
    return runs


def quick_mean(values: Sequence[float]) -> float:
    """Mean of the quickest quarter of the values, of two at least."""
    ordered = np.sort(np.asarray(values, np.float64))
    return float(ordered[: max(len(ordered) // 4, 2)].mean())


def scaled(ns: Mapping[str, float], whole_ns: float) -> dict[str, float]:
    """The times of nodes, made smaller so that their sum is at most that of whole runs.

    Args:
        ns: name of a node -> nanoseconds, with the profiler on.
        whole_ns: nanoseconds of a run without it.
    """
    total = sum(ns.values())
    factor = min(1.0, whole_ns / total) if total > 0 else 1.0
    return {name: each * factor for name, each in ns.items()}
