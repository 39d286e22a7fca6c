"""Measures links: the least CPU time of the longer model, less that of the shorter one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onnxq.ort.runtime import open_session
from onnxq.times import Costs, Timing, Work
from onnxq.times.fit import LEAST_NS
from onnxq.times.microbenchmarks.link import SHAPE
from onnxq.times.work import RUN

if TYPE_CHECKING:
    from onnxq.ort.runtime import Session
    from onnxq.times.microbenchmarks.link import Link

Progress = Callable[[int, int | None], None]
Clock = Callable[["Link", int, int], tuple[float, float]]
"""clock(link, more, runs): least CPU seconds of one run of the link's shorter model, and of the one
with `more` links on top."""
RUNS = 20
"""Runs of each model in one pass."""
PASSES = 3
"""Passes over all links: what disturbs one of them has passed by the next."""
DIFFERENCE_S = 60e-6
"""Time by which the longer model is to take longer, some fifty times what two runs differ by."""
MOST_LINKS = 64
CACHE_BYTES = 4 << 20
"""Bytes that are read ahead of every run: in a network, the weights of a node are not in the cache,
whose size (2 MiB) other nodes' weights and tensors have filled since the last run."""


def seconds_here(link: Link, more: int, runs: int) -> tuple[float, float]:
    """Least CPU seconds of one run of the shorter model and of the longer one, in turns."""
    with (
        open_session(link.model(link.few), threads=1, optimization=link.optimization) as few,
        open_session(
            link.model(link.few + more), threads=1, optimization=link.optimization
        ) as many,
    ):
        rounds = [[_run(each, link) for each in (few, many)] for _ in range(runs + 1)][1:]
    return min(each[0] for each in rounds), min(each[1] for each in rounds)


def measured(
    links: Sequence[Link],
    passes: int = PASSES,
    progress: Progress | None = None,
    clock: Clock = seconds_here,
) -> tuple[Timing, ...]:
    """Timing of a run with nothing in it, then one per work of each link, in their order.

    Interruptions by other programs only ever add time, so that the least of all rounds counts.

    Args:
        links: those that others name in `minus` are among them.
        passes: over all links.
        progress: called after each link of each pass.
        clock: times a link on the machine whose table this is; by default this one.
    """
    least = [(float("inf"), float("inf"))] * len(links)
    more = [link.more for link in links]
    for turn in range(passes):
        for number, link in enumerate(links):
            if turn == 0:
                more[number] = _links_on_top(link, clock)
            few, many = clock(link, more[number], RUNS)
            least[number] = min(least[number][0], few), min(least[number][1], many)
            if progress is not None:
                progress(turn * len(links) + number + 1, passes * len(links))
    ns = [(many - few) / count * 1e9 for count, (few, many) in zip(more, least, strict=True)]
    run = [
        Timing(Work(RUN), link.form, least[number][0] * 1e9 - ns[number])
        for number, link in enumerate(links)
        if (link.works[0], link.form) == SHAPE
    ]
    return (*run, *_without_others(links, ns))


def _links_on_top(link: Link, clock: Clock) -> int:
    """Links that the longer model has on top, so that the time of them all can be told."""
    few, many = clock(link, link.more, 3)
    one = max(many - few, 0.0) / link.more
    wanted = MOST_LINKS if one * MOST_LINKS < DIFFERENCE_S else int(DIFFERENCE_S / one)
    return max(link.more, wanted)


def _without_others(links: Sequence[Link], ns: Sequence[float]) -> tuple[Timing, ...]:
    """The time of each link's own works: first of links that hold no others, then of the rest."""
    found: dict[int, list[Timing]] = {}
    for depth in range(1 + max(map(_depth, links))):
        known = Costs("", "", "", "", "", "", "", tuple(t for own in found.values() for t in own))
        for number, link in enumerate(links):
            if _depth(link) == depth:
                share = (ns[number] - _others(link, known)) / len(link.works)
                found[number] = [Timing(w, link.form, max(share, LEAST_NS)) for w in link.works]
    return tuple(timing for number in sorted(found) for timing in found[number])


def _depth(link: Link) -> int:
    """0 where a link holds nothing else, 1 where sizes are read behind it, else 2."""
    others = set(link.minus)
    return 2 if others - {SHAPE} else len(others)


def _others(link: Link, known: Costs) -> float:
    """Nanoseconds of what a link holds beside its works."""
    total = 0.0
    for work, form in link.minus:
        found = known.node(work, form)
        assert found is not None, f"{work} in {form} is to be measured, too"
        total += found.ns
    return total


def _run(session: Session, link: Link) -> float:
    _OTHERS.max()
    begun = time.thread_time()
    session.run(link.inputs)
    return time.thread_time() - begun


_OTHERS = np.zeros(CACHE_BYTES // 4, np.float32)
"""Data of others."""
