"""Candidate of a search: the mapping that it began with, and the changes from there; and points."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onnxq.tuning.search.config_changes import form_in, with_form
from onnxq.tuning.search.layers import by_layer_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnxq.operator import Precision
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.scoring.score import Score
    from onnxq.tuning.search.config_changes import ConfigChange
    from onnxq.tuning.search.quantization_groups import QuantizationGroup


@dataclass(frozen=True, slots=True)
class PrecisionChange:
    """Another form of one group.

    Attributes:
        group: nodes that take it together.
        form: that they take.
    """

    group: QuantizationGroup
    form: Precision


@dataclass(frozen=True)
class Candidate:
    """A mapping, as changes from the one that a search began with.

    Attributes:
        start: names the form of every node.
        groups: that a search may change, in graph order.
        forms: anchor -> form, of the groups whose form is another one than in `start`.
        whole: changes of the whole model, in order.
        name: of `start`, in words; empty: as it was asked for.
    """

    start: QConfigMapping = field(repr=False)
    groups: tuple[QuantizationGroup, ...] = field(repr=False)
    forms: Mapping[str, Precision] = field(default_factory=dict, hash=False)
    whole: tuple[ConfigChange, ...] = ()
    name: str = ""

    def form(self, group: QuantizationGroup) -> Precision:
        """The form of a group's anchor."""
        return self.forms.get(group.anchor.name) or form_in(self.start, group)

    def with_changes(self, changes: Iterable[PrecisionChange]) -> Candidate:
        """The candidate with these forms; the later one holds."""
        forms = dict(self.forms)
        for change in changes:
            forms[change.group.anchor.name] = change.form
            if form_in(self.start, change.group) is change.form:
                del forms[change.group.anchor.name]  # back to its nodes as they began
        return replace(self, forms=forms)

    def also(self, *changes: ConfigChange) -> Candidate:
        """The candidate with these changes of the whole model."""
        return replace(self, whole=(*self.whole, *changes))

    def node_forms(self, begun: Mapping[str, Precision | None]) -> dict[str, Precision | None]:
        """Node name -> its form; None: it is carried out inside of another one.

        Args:
            begun: forms that `start` gives, of every node.
        """
        found = dict(begun)
        for group in self.groups:
            form = self.forms.get(group.anchor.name)
            if form is not None:
                found[group.anchor.name] = form
                found |= {other.name: other.runs_beside(form) for other in group.others}
        return found

    @property
    def mapping(self) -> QConfigMapping:
        """The qconfig."""
        mapping = self.start
        for group in self.groups:
            if group.anchor.name in self.forms:
                mapping = with_form(mapping, group, self.forms[group.anchor.name])
        for change in self.whole:
            mapping = change.applied(mapping)
        return mapping

    @property
    def words(self) -> tuple[str, ...]:
        """Where it began, unless as asked for, and the changes: "float: 3 x Conv, /a .. c".

        Where fewer layer types do not have a form, these are named: "float: all but Gemm, /head".
        """
        found = [self.name] if self.name else []
        with_changes = [group for group in self.groups if group.anchor.name in self.forms]
        for form in dict.fromkeys(self.forms[group.anchor.name] for group in with_changes):
            alike = by_layer_type(
                group for group in with_changes if self.forms[group.anchor.name] is form
            )
            others = by_layer_type(group for group in self.groups if self.form(group) is not form)
            if len(others) < len(alike) > 1:
                names = " and ".join(layers.name for layers in others)
                found.append(f"{form.value}: all but {names}" if names else f"{form.value}: all")
            else:
                found += [f"{form.value}: {layers.name}" for layers in alike]
        return (*found, *(change.name for change in self.whole))


@dataclass(frozen=True)
class MeasuredCandidate:
    """A candidate that was measured.

    Attributes:
        candidate: of the search.
        score: on its samples.
    """

    candidate: Candidate
    score: Score
