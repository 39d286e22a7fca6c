"""Candidate of a search: the mapping that it began with, and the changes from there; and points."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnxq.tuning.search.config_changes import precision_in, with_precision
from onnxq.tuning.search.quantization_groups import by_layer_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnxq.operator import Precision
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.scoring.score import Score
    from onnxq.tuning.search.config_changes import ConfigChange
    from onnxq.tuning.search.quantization_groups import QuantizationGroup


@dataclass(frozen=True, slots=True)
class PrecisionChange:
    """Another precision of one group."""

    group: QuantizationGroup
    precision: Precision


@dataclass(frozen=True)
class Candidate:
    """A mapping, as changes from the one that a search began with.

    Attributes:
        start: names the precision of every node.
        groups: that a search may change, in graph order.
        precisions: anchor -> precision, of the groups with another one than in `start`.
        whole: changes of the whole model, in order.
        name: of `start`, in words; empty: as it was asked for.
    """

    start: QConfigMapping = field(repr=False)
    groups: tuple[QuantizationGroup, ...] = field(repr=False)
    precisions: Mapping[str, Precision] = field(default_factory=dict, hash=False)
    whole: tuple[ConfigChange, ...] = ()
    name: str = ""

    def precision(self, group: QuantizationGroup) -> Precision:
        """The precision of a group's anchor."""
        return self.precisions.get(group.anchor.name) or precision_in(self.start, group)

    def with_changes(self, changes: Iterable[PrecisionChange]) -> Candidate:
        """The candidate with these precisions; the later one holds."""
        precisions = dict(self.precisions)
        for change in changes:
            precisions[change.group.anchor.name] = change.precision
            if precision_in(self.start, change.group) is change.precision:
                del precisions[change.group.anchor.name]  # back to its nodes as they began
        return replace(self, precisions=precisions)

    def also(self, *changes: ConfigChange) -> Candidate:
        """The candidate with these changes of the whole model."""
        return replace(self, whole=(*self.whole, *changes))

    def node_forms(self, begun: Mapping[str, Precision | None]) -> dict[str, Precision | None]:
        """Node name -> its precision; None: it is carried out inside of another one."""
        found = dict(begun)
        for group in self.groups:
            precision = self.precisions.get(group.anchor.name)
            if precision is not None:
                found[group.anchor.name] = precision
                found |= {other.name: other.runs_beside(precision) for other in group.others}
        return found

    @property
    def mapping(self) -> QConfigMapping:
        """The qconfig."""
        mapping = self.start
        for group in self.groups:
            if group.anchor.name in self.precisions:
                mapping = with_precision(mapping, group, self.precisions[group.anchor.name])
        for change in self.whole:
            mapping = change.applied(mapping)
        return mapping

    @property
    def words(self) -> tuple[str, ...]:
        """Where it began, unless as asked for, and the changes: "float: 3 x Conv, /a .. c".

        Where fewer layer types lack a precision, these are named: "float: all but Gemm, /head".
        """
        found = [self.name] if self.name else []
        with_changes = [group for group in self.groups if group.anchor.name in self.precisions]
        for precision in dict.fromkeys(
            self.precisions[group.anchor.name] for group in with_changes
        ):
            alike = by_layer_type(
                group for group in with_changes if self.precisions[group.anchor.name] is precision
            )
            others = by_layer_type(
                group for group in self.groups if self.precision(group) is not precision
            )
            if len(others) < len(alike) > 1:
                names = " and ".join(layers.name for layers in others)
                found.append(
                    f"{precision.value}: all but {names}" if names else f"{precision.value}: all"
                )
            else:
                found += [f"{precision.value}: {layers.name}" for layers in alike]
        return (*found, *(change.name for change in self.whole))


@dataclass(frozen=True)
class MeasuredCandidate:
    """A candidate that was measured."""

    candidate: Candidate
    score: Score
