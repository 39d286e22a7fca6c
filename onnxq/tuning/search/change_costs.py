"""Costs of changes of one group from a candidate: share of float's time, or of its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.tuning.search.candidate import PrecisionChange

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from onnxq.tuning.search.candidate import Candidate
    from onnxq.tuning.search.quantization_groups import QuantizationGroup

TimeOf = Callable[["Candidate"], "float | None"]
"""Predicted time over float's, without a run; None: no times are known."""
Costs = dict[PrecisionChange, float]
"""Cost of each change; negative where it saves some."""
FLOAT_BYTES = 4
"""Bytes of a weight in float; 1 in every other form."""


def options_of(
    candidate: Candidate, closed: Container[tuple[str, Precision]]
) -> list[PrecisionChange]:
    """Every change of one group.

    Args:
        candidate: that they start from.
        closed: (anchor, form) of those that are left out.
    """
    return [
        PrecisionChange(group, form)
        for group in candidate.groups
        for form in group.forms
        if form is not candidate.form(group) and (group.anchor.name, form) not in closed
    ]


def times_alone(candidate: Candidate, options: Sequence[PrecisionChange], time_of: TimeOf) -> Costs:
    """Share of float's time that each change costs by itself."""
    now = time_of(candidate)
    return {
        change: _difference(now, time_of(candidate.with_changes([change]))) for change in options
    }


def times_with_their_layer_type(
    candidate: Candidate, options: Sequence[PrecisionChange], time_of: TimeOf
) -> Costs:
    """The same of changes that all groups of a layer type make at once, without conversions."""
    alike: dict[tuple[str, Precision], list[PrecisionChange]] = {}
    for change in options:
        alike.setdefault((change.group.layer_type, change.form), []).append(change)
    now = time_of(candidate)
    found: Costs = {}
    for changes in alike.values():
        cost = _difference(now, time_of(candidate.with_changes(changes))) / len(changes)
        found |= dict.fromkeys(changes, cost)
    return found


def bytes_alone(candidate: Candidate, options: Sequence[PrecisionChange]) -> Costs:
    """Share of float's weights that each change costs."""
    every = _float_bytes(candidate)

    def cost(change: PrecisionChange) -> int:
        return held_bytes(change.group, change.form) - held_bytes(
            change.group, candidate.form(change.group)
        )

    return {change: cost(change) / every for change in options}


def share_of_bytes(candidate: Candidate) -> float:
    """Bytes of the weights of groups, over those in float."""
    held = sum(held_bytes(group, candidate.form(group)) for group in candidate.groups)
    return held / _float_bytes(candidate)


def held_bytes(group: QuantizationGroup, form: Precision) -> int:
    """Bytes of the weights of a group in that form."""
    return group.weights * (FLOAT_BYTES if form is Precision.FLOAT else 1)


def _float_bytes(candidate: Candidate) -> int:
    return max(FLOAT_BYTES * sum(group.weights for group in candidate.groups), 1)


def _difference(now: float | None, then: float | None) -> float:
    return 0.0 if now is None or then is None else then - now
