"""Position of a search: the mapping that it began with, and the moves from there; and points."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnxq.tuning.moving.kinds import by_kind
from onnxq.tuning.moving.moves import form_in, with_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnxq.operator import Precision
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.judging.score import Score
    from onnxq.tuning.moving.moves import WholeMove
    from onnxq.tuning.moving.units import Unit


@dataclass(frozen=True, slots=True)
class FormMove:
    """Another form of one unit.

    Attributes:
        unit: nodes that take it together.
        form: that they take.
    """

    unit: Unit
    form: Precision


@dataclass(frozen=True)
class Position:
    """A mapping, as moves from the one that a search began with.

    Attributes:
        start: names the form of every node.
        units: that a search may move, in graph order.
        forms: anchor -> form, of the units whose form is another one than in `start`.
        whole: moves of the whole model, in order.
        name: of `start`, in words; empty: as it was asked for.
    """

    start: QConfigMapping = field(repr=False)
    units: tuple[Unit, ...] = field(repr=False)
    forms: Mapping[str, Precision] = field(default_factory=dict, hash=False)
    whole: tuple[WholeMove, ...] = ()
    name: str = ""

    def form(self, unit: Unit) -> Precision:
        """The form of a unit's anchor."""
        return self.forms.get(unit.anchor.name) or form_in(self.start, unit)

    def moved(self, moves: Iterable[FormMove]) -> Position:
        """The position with these forms; the later one holds."""
        forms = dict(self.forms)
        for move in moves:
            forms[move.unit.anchor.name] = move.form
            if form_in(self.start, move.unit) is move.form:
                del forms[move.unit.anchor.name]  # back to its nodes as they began
        return replace(self, forms=forms)

    def also(self, *moves: WholeMove) -> Position:
        """The position with these moves of the whole model."""
        return replace(self, whole=(*self.whole, *moves))

    def node_forms(self, begun: Mapping[str, Precision | None]) -> dict[str, Precision | None]:
        """Node name -> its form; None: it is carried out inside of another one.

        Args:
            begun: forms that `start` gives, of every node.
        """
        found = dict(begun)
        for unit in self.units:
            form = self.forms.get(unit.anchor.name)
            if form is not None:
                found[unit.anchor.name] = form
                found |= {other.name: other.runs_beside(form) for other in unit.others}
        return found

    @property
    def mapping(self) -> QConfigMapping:
        """The qconfig."""
        mapping = self.start
        for unit in self.units:
            if unit.anchor.name in self.forms:
                mapping = with_form(mapping, unit, self.forms[unit.anchor.name])
        for move in self.whole:
            mapping = move.applied(mapping)
        return mapping

    @property
    def words(self) -> tuple[str, ...]:
        """Where it began, unless as asked for, and the moves: "float: 3 x Conv, /a .. c".

        Where fewer kinds do not have a form, these are named: "float: all but Gemm, /head".
        """
        found = [self.name] if self.name else []
        moved = [unit for unit in self.units if unit.anchor.name in self.forms]
        for form in dict.fromkeys(self.forms[unit.anchor.name] for unit in moved):
            alike = by_kind(unit for unit in moved if self.forms[unit.anchor.name] is form)
            others = by_kind(unit for unit in self.units if self.form(unit) is not form)
            if len(others) < len(alike) > 1:
                names = " and ".join(group.name for group in others)
                found.append(f"{form.value}: all but {names}" if names else f"{form.value}: all")
            else:
                found += [f"{form.value}: {group.name}" for group in alike]
        return (*found, *(move.name for move in self.whole))


@dataclass(frozen=True)
class Point:
    """A position that was measured.

    Attributes:
        position: of the search.
        score: on its samples.
    """

    position: Position
    score: Score
