"""Bounds that the default's files have to keep, as the issue that made it the default has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripts._timing import NOT_SLOWER
from scripts._ways import Way

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripts._defaults.measured import Row

PORTABLE_BEHIND_DB = 2.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Bounds on the default's file; None: there is no such bound.

    Attributes:
        ratio: of its CPU time over float's, at most; at NOT_SLOWER an interval that reaches down
            to 1 will do.
        sqnr_db: at least.
        behind_db: below the file whose linear layers alone are integers, at most.
        behind_ratio: above that file's ratio, at most.
        size: of its file over float's, at most.
        lost_score: share of the score that may be lost.
        dynamic_ratio: of the CPU time of quantize_dynamic's file, at most.
    """

    ratio: float = NOT_SLOWER
    sqnr_db: float | None = None
    behind_db: float | None = None
    behind_ratio: float | None = None
    size: float | None = None
    lost_score: float | None = None
    dynamic_ratio: float | None = None


def unmet(row: Row, demand: Demand) -> Iterator[str]:
    """Bounds that the default's file misses, with the figures."""
    if Way.DEFAULT not in row.figures:
        yield f"no file: {row.failed[Way.DEFAULT]}"
        return
    yield from _late(row, demand)
    yield from _inexact(row, demand)
    default = row.figures[Way.DEFAULT]
    if demand.size is not None and default.size > demand.size:
        yield f"size {default.size:.2f}; wanted {demand.size:.2f}"
    if demand.lost_score is not None and default.score is not None and row.float_score is not None:
        lost = row.float_score - default.score
        if lost > demand.lost_score:
            yield f"score {lost:.3f} below float's; wanted {demand.lost_score:.3f}"


def _late(row: Row, demand: Demand) -> Iterator[str]:
    linear, dynamic = row.figures.get(Way.LINEAR_LAYERS), row.figures.get(Way.DYNAMIC)
    for condition, ratio in row.figures[Way.DEFAULT].ratio.items():
        where = f" at {condition}" if condition else ""
        if ratio.median > demand.ratio and ratio.low > min(demand.ratio, 1):
            yield f"time {ratio}{where}; wanted {demand.ratio:.2f}"
        if demand.behind_ratio is not None and linear is not None:
            behind = ratio.median - linear.ratio[condition].median
            if behind > demand.behind_ratio:
                wanted = f"wanted {demand.behind_ratio:.2f}"
                yield f"time {behind:.2f} above linear layers alone{where}; {wanted}"
        if demand.dynamic_ratio is not None and dynamic is not None:
            ratio = dynamic.ratio[condition]
            if ratio.median > demand.dynamic_ratio:
                yield f"dynamic time {ratio}{where}; wanted {demand.dynamic_ratio:.2f}"


def _inexact(row: Row, demand: Demand) -> Iterator[str]:
    got = row.figures[Way.DEFAULT].sqnr_db
    if demand.sqnr_db is not None and got < demand.sqnr_db:
        yield f"{got:.1f} dB; wanted {demand.sqnr_db:.1f}"
    if demand.behind_db is not None and Way.LINEAR_LAYERS in row.figures:
        behind = row.figures[Way.LINEAR_LAYERS].sqnr_db - got
        if behind > demand.behind_db:
            yield f"{behind:.1f} dB below linear layers alone; wanted {demand.behind_db:.1f}"
    if Way.PORTABLE in row.figures:
        behind = got - row.figures[Way.PORTABLE].sqnr_db
        if behind > PORTABLE_BEHIND_DB:
            yield f"portable {behind:.1f} dB below x86-vnni; wanted {PORTABLE_BEHIND_DB:.1f}"
