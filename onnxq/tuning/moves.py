"""Moves of a search: values, each of which makes another qconfig of one that names every node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from onnxq.operator import DynamicForm, NodeForm
from onnxq.qconfig import QConfig, QConfigDynamic, onnxq_default_qconfig
from onnxq.static.choosing.choices import dynamic_entry

if TYPE_CHECKING:
    from onnxq.observers import ObserverSpec
    from onnxq.qconfig import Entry, QConfigMapping
    from onnxq.tuning.units import Member, Unit

DYNAMIC = {NodeForm.DYNAMIC: DynamicForm.INTEGER, NodeForm.STORED: DynamicForm.STORED}
"""Forms that a QConfigDynamic names."""


def with_form(mapping: QConfigMapping, unit: Unit, form: NodeForm) -> QConfigMapping:
    """The mapping in which a unit has that form; observers are those of the global entry."""
    base = mapping.global_qconfig
    if not isinstance(base, QConfig):
        base = onnxq_default_qconfig
    entries = {unit.anchor.name: _entry(base, form)}
    entries |= {member.name: _entry(base, form_beside(member, form)) for member in unit.others}
    return replace(mapping, nodes={**mapping.nodes, **entries})


def form_in(mapping: QConfigMapping, unit: Unit) -> NodeForm:
    """The form that a mapping names for a unit's anchor; that with most integers if it is open."""
    entry = mapping.entry_for_node(unit.anchor.name, unit.anchor.op_type)
    if entry is None:
        return NodeForm.FLOAT
    if isinstance(entry, QConfigDynamic):
        stored = entry.form not in (None, DynamicForm.INTEGER)
        return NodeForm.STORED if stored else NodeForm.DYNAMIC
    return entry.form or unit.coded


def _entry(base: QConfig, form: NodeForm) -> Entry:
    if form in DYNAMIC:
        return replace(dynamic_entry(base), form=DYNAMIC[form])
    return replace(base, form=form)


def form_beside(member: Member, form: NodeForm) -> NodeForm:
    """The form of what goes with an anchor of that form."""
    if form is NodeForm.INTEGER:
        return form
    if form is NodeForm.FLOAT_RESULT and member.inside and not member.clamps:
        return NodeForm.INTEGER  # a bias is added within the product, whose result is float32
    return NodeForm.FLOAT


class WholeMove(Protocol):
    """Move of a whole model, beside the forms of its nodes."""

    @property
    def name(self) -> str:
        """Name that a user understands."""

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """Another mapping."""


@dataclass(frozen=True, slots=True)
class ActivationObserver:
    """Another observer of all activations that have the default's.

    Attributes:
        spec: the observer.
    """

    spec: ObserverSpec

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return f"activations by {self.spec.name}"

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping with this observer where the activations have the global entry's."""
        base = mapping.global_qconfig

        def changed(entry: Entry) -> Entry:
            if isinstance(entry, QConfig) and isinstance(base, QConfig):
                same = entry.activation == base.activation
                return replace(entry, activation=self.spec) if same else entry
            return entry

        nodes = {name: changed(entry) for name, entry in mapping.nodes.items()}
        return replace(mapping, global_qconfig=changed(base), nodes=nodes)


@dataclass(frozen=True, slots=True)
class ImproveMove:
    """Improvement of the weights, which judges itself layer by layer (see onnxq.improve).

    Attributes:
        which: its name.
    """

    which: str

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return f"improve: {self.which}"

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping that asks for it behind those that it asks for already."""
        return mapping.set_improve((*mapping.improve, self.which))
