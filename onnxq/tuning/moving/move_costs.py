"""Costs of moves of one unit from a position: share of float's time, or of its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.tuning.moving.position import FormMove

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from onnxq.tuning.moving.position import Position
    from onnxq.tuning.moving.units import Unit

TimeOf = Callable[["Position"], "float | None"]
"""Predicted time over float's, without a run; None: no times are known."""
Costs = dict[FormMove, float]
"""Cost of each move; negative where it saves some."""
FLOAT_BYTES = 4
"""Bytes of a weight in float; 1 in every other form."""


def options_of(position: Position, closed: Container[tuple[str, Precision]]) -> list[FormMove]:
    """Every move of one unit.

    Args:
        position: that they start from.
        closed: (anchor, form) of those that are left out.
    """
    return [
        FormMove(unit, form)
        for unit in position.units
        for form in unit.forms
        if form is not position.form(unit) and (unit.anchor.name, form) not in closed
    ]


def times_alone(position: Position, options: Sequence[FormMove], time_of: TimeOf) -> Costs:
    """Share of float's time that each move costs by itself."""
    now = time_of(position)
    return {move: _difference(now, time_of(position.moved([move]))) for move in options}


def times_with_their_kind(
    position: Position, options: Sequence[FormMove], time_of: TimeOf
) -> Costs:
    """The same of moves that all units of a kind make at once: nothing changes between them."""
    alike: dict[tuple[str, Precision], list[FormMove]] = {}
    for move in options:
        alike.setdefault((move.unit.kind, move.form), []).append(move)
    now = time_of(position)
    found: Costs = {}
    for moves in alike.values():
        cost = _difference(now, time_of(position.moved(moves))) / len(moves)
        found |= dict.fromkeys(moves, cost)
    return found


def bytes_alone(position: Position, options: Sequence[FormMove]) -> Costs:
    """Share of float's weights that each move costs."""
    every = _float_bytes(position)

    def cost(move: FormMove) -> int:
        return held_bytes(move.unit, move.form) - held_bytes(move.unit, position.form(move.unit))

    return {move: cost(move) / every for move in options}


def share_of_bytes(position: Position) -> float:
    """Bytes of the weights of units, over those in float."""
    held = sum(held_bytes(unit, position.form(unit)) for unit in position.units)
    return held / _float_bytes(position)


def held_bytes(unit: Unit, form: Precision) -> int:
    """Bytes of the weights of a unit in that form."""
    return unit.weights * (FLOAT_BYTES if form is Precision.FLOAT else 1)


def _float_bytes(position: Position) -> int:
    return max(FLOAT_BYTES * sum(unit.weights for unit in position.units), 1)


def _difference(now: float | None, then: float | None) -> float:
    return 0.0 if now is None or then is None else then - now
