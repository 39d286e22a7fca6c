"""Rows of a table on improvements of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.quantized.outcome import Outcome


def improvement_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """(improvement, node or site, kept, dB before and after, why) of each outcome."""
    return [
        (
            outcome.improvement,
            outcome.place or "(outputs)",
            "yes" if outcome.kept else "no",
            _decibels(outcome.before_db),
            _decibels(outcome.after_db),
            outcome.why,
        )
        for outcome in outcomes
    ]


def _decibels(db: float | None) -> str:
    return "" if db is None else f"{db:.1f}"
