"""Moves of a search: values, each of which makes another qconfig of one that names every node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.qconfig import QConfig, QConfigDynamic, onnxq_default_qconfig
from onnxq.static.choosing.choices import dynamic_entry
from onnxq.tuning.moving.kinds import Alike

if TYPE_CHECKING:
    from onnxq.observers import ObserverSpec
    from onnxq.qconfig import Entry, QConfigMapping
    from onnxq.tuning.moving.units import Unit

DYNAMIC = (Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY)
"""Forms that a QConfigDynamic names."""


def with_form(mapping: QConfigMapping, unit: Unit, form: Precision) -> QConfigMapping:
    """The mapping in which a unit has that form; observers are those of the global entry."""
    base = mapping.global_qconfig
    if not isinstance(base, QConfig):
        base = onnxq_default_qconfig
    entries = {unit.anchor.name: _entry(base, form)}
    entries |= {member.name: _entry(base, member.beside(form)) for member in unit.others}
    return replace(mapping, nodes={**mapping.nodes, **entries})


def form_in(mapping: QConfigMapping, unit: Unit) -> Precision:
    """The form that a mapping names for a unit's anchor; that with most integers if it is open."""
    entry = mapping.entry_for_node(unit.anchor.name, unit.anchor.op_type)
    if entry is None:
        return Precision.FLOAT
    if isinstance(entry, QConfigDynamic):
        stored = entry.precision not in (None, Precision.DYNAMIC_INT8)
        return Precision.WEIGHT_ONLY if stored else Precision.DYNAMIC_INT8
    return entry.precision or unit.coded


def _entry(base: QConfig, form: Precision) -> Entry:
    if form in DYNAMIC:
        return replace(dynamic_entry(base), precision=form)
    return replace(base, precision=form)


class WholeMove(Protocol):
    """Move of a model, or of a part of it, beside the forms of its nodes."""

    @property
    def name(self) -> str:
        """Name that a user understands."""

    @property
    def aspect(self) -> str:
        """Aspect that it decides on: of two moves of one aspect, one is taken."""

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """Another mapping."""


class EntryMove(WholeMove, Protocol):
    """Move that changes entries, each by itself, so that it can be one of some nodes alone."""

    def changed(self, entry: Entry, base: Entry) -> Entry:
        """The entry with the move, where it has what the global entry, `base`, has."""


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

    @property
    def aspect(self) -> str:
        """Ranges of activations."""
        return "activations"

    def changed(self, entry: Entry, base: Entry) -> Entry:
        """The entry with this observer."""
        if not isinstance(entry, QConfig) or not isinstance(base, QConfig):
            return entry
        same = entry.activation == base.activation
        return replace(entry, activation=self.spec) if same else entry

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping with this observer where the activations have the global entry's."""
        return _everywhere(self, mapping)


@dataclass(frozen=True, slots=True)
class WeightScales:
    """Another observer of all weights that have the default's: a scale per channel, or one.

    Attributes:
        spec: the observer.
    """

    spec: ObserverSpec

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return "weights per channel" if is_per_channel(self.spec) else "weights per tensor"

    @property
    def aspect(self) -> str:
        """Scales of weights."""
        return "weights"

    def changed(self, entry: Entry, base: Entry) -> Entry:
        """The entry with this observer."""
        if entry is None or base is None:
            return entry
        return replace(entry, weight=self.spec) if entry.weight == base.weight else entry

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping with this observer where the weights have the global entry's."""
        return _everywhere(self, mapping)


PER_CHANNEL = WeightScales(NarrowRangeObserver.with_args())
PER_TENSOR = WeightScales(NarrowRangeObserver.with_args(ch_axis=None))
"""One scale for a weight: products of matrices take 0.9 of the time, convolutions as long as with a
scale per channel, and both lose decibels (scripts/bench_moves.md)."""


def is_per_channel(spec: ObserverSpec) -> bool:
    """Whether an observer of weights finds a scale for each channel."""
    return spec().qscheme.per_channel


@dataclass(frozen=True, slots=True)
class Within:
    """Move of some units alone.

    Attributes:
        move: of a whole model.
        units: that have it.
    """

    move: EntryMove
    units: tuple[Unit, ...]

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return f"{self.move.name}: {Alike(self.units).name}"

    @property
    def aspect(self) -> str:
        """The move's."""
        return self.move.aspect

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping with the move in the entries of these units."""
        nodes = dict(mapping.nodes)
        for name in Alike(self.units).group.nodes:
            if name in nodes:
                nodes[name] = self.move.changed(nodes[name], mapping.global_qconfig)
        return replace(mapping, nodes=nodes)


def _everywhere(move: EntryMove, mapping: QConfigMapping) -> QConfigMapping:
    base = mapping.global_qconfig
    nodes = {name: move.changed(entry, base) for name, entry in mapping.nodes.items()}
    return replace(mapping, global_qconfig=move.changed(base, base), nodes=nodes)


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

    @property
    def aspect(self) -> str:
        """The improvement itself: others may follow it."""
        return self.which

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping that asks for it behind those that it asks for already."""
        return mapping.set_improve((*mapping.improve, self.which))
