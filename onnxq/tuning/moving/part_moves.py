"""Moves of parts of a model within their forms, in the order of what each gives.

A group that is quantized alone is measured with its entries as they are, and with each move: the
noise that a move takes away is its gain. It costs no time, so that gains alone order these moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.tuning.measuring.measure_sensitivity import few_runs, sensitivity_of
from onnxq.tuning.moving.moves import Within
from onnxq.tuning.timing.node_group import NodeGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluating.evaluations import Evaluations
    from onnxq.tuning.moving.kinds import Alike
    from onnxq.tuning.moving.moves import EntryMove
    from onnxq.tuning.moving.position import Position

MOST_GROUPS = 4
"""Groups that are measured with each move, the dearest: those behind them have a tenth of the noise
and less in the table of docs/guides/tune.md."""
IN_FLOAT = (Precision.FLOAT, Precision.WEIGHT_ONLY)
"""Forms whose activations are no codes."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A group with a move of its own.

    Attributes:
        alike: the units.
        move: within their forms; None: as they are.
    """

    alike: Alike
    move: EntryMove | None

    @property
    def group(self) -> NodeGroup:
        """The nodes, under a name that tells the move."""
        group = self.alike.group
        beside = "" if self.move is None else f", {self.move.name}"
        return NodeGroup(f"{group.name}{beside}", group.nodes)


@dataclass(frozen=True, eq=False)
class PartMoves:
    """Offers of moves of the dearest groups of a model.

    Attributes:
        evaluations: of the search.
        groups: the dearest first; none has a unit of another.
        moves: that each may have.
        alone: mapping in which a group is quantized, and all else in float.
        executor: runs the groups; None: this process.
    """

    evaluations: Evaluations
    groups: Sequence[Alike]
    moves: Sequence[EntryMove]
    alone: Callable[[Alike], QConfigMapping]
    executor: Executor | None

    @property
    def runs(self) -> float:
        """Runs that offers take at most."""
        groups = min(len(self.groups), MOST_GROUPS)
        asked = groups * (1 + len(self.moves)) if self.moves else 0
        return few_runs(self.evaluations.evaluator.samples, asked)

    def offers(self, position: Position) -> list[Within]:
        """Moves that take noise away from groups whose activations are codes, the best first.

        Args:
            position: of the search; what it has in float has nothing to gain.
        """
        groups = [group for group in self.groups if _is_coded(group, position)][:MOST_GROUPS]
        asked = [Changed(group, move) for group in groups for move in (None, *self.moves)]
        if not self.moves or not groups:
            return []
        found = sensitivity_of(
            self.evaluations,
            self._mapping,
            asked,
            None,
            self.executor,
            few_runs(self.evaluations.evaluator.samples, len(asked)),
        )
        noise = {cost.group: cost.noise for cost in found.costs}
        return _best(asked, noise)

    def _mapping(self, changed: Changed) -> QConfigMapping:
        mapping = self.alone(changed.alike)
        if changed.move is None:
            return mapping
        return Within(changed.move, changed.alike.units).applied(mapping)


def _is_coded(group: Alike, position: Position) -> bool:
    return any(position.form(unit) not in IN_FLOAT for unit in group.units)


def _best(asked: Iterable[Changed], noise: Mapping[str, float]) -> list[Within]:
    """The moves with a gain, for each group and aspect the one with the most, best first."""
    gains: dict[tuple[str, str], tuple[float, Within]] = {}
    for each in asked:
        before, after = noise.get(each.alike.name), noise.get(each.group.name)
        if each.move is None or before is None or after is None or after >= before:
            continue
        key = each.alike.name, each.move.aspect
        if key not in gains or gains[key][0] < before - after:
            gains[key] = before - after, Within(each.move, each.alike.units)
    return [move for _, move in sorted(gains.values(), key=lambda item: -item[0])]
