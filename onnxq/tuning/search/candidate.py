"""Candidate of a search: the mapping that it began with, and the changes from there; and points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from onnxq.observers import MinMaxObserver, NarrowRangeObserver, ObserverSpec, PercentileObserver
from onnxq.operator import Precision
from onnxq.qconfig import Entry, QConfig, QConfigDynamic, QConfigMapping, onnxq_default_qconfig
from onnxq.static.choosing.node_precisions import dynamic_entry
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.quantization_groups import Layers, QuantizationGroup, by_layer_type

DYNAMIC = (Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY)
"""Precisions that a QConfigDynamic names."""


def with_precision(
    mapping: QConfigMapping, group: QuantizationGroup, precision: Precision
) -> QConfigMapping:
    """The mapping in which a group has that precision; observers are those of the global entry."""
    base = mapping.global_qconfig
    if not isinstance(base, QConfig):
        base = onnxq_default_qconfig
    entries = {group.anchor.name: _entry(base, precision)}
    entries |= {member.name: _entry(base, member.beside(precision)) for member in group.others}
    return replace(mapping, nodes={**mapping.nodes, **entries})


def precision_in(mapping: QConfigMapping, group: QuantizationGroup) -> Precision:
    """Precision that a mapping names for a group's anchor; the group's lowest if it is open."""
    entry = mapping.entry_for_node(group.anchor.name, group.anchor.op_type)
    if entry is None:
        return Precision.FLOAT
    if isinstance(entry, QConfigDynamic):
        stored = entry.precision not in (None, Precision.DYNAMIC_INT8)
        return Precision.WEIGHT_ONLY if stored else Precision.DYNAMIC_INT8
    return entry.precision or group.lowest_precision


def _entry(base: QConfig, precision: Precision) -> Entry:
    if precision in DYNAMIC:
        return replace(dynamic_entry(base), precision=precision)
    return replace(base, precision=precision)


class ConfigChange(Protocol):
    """Change of a model, or of a part of it, beside the precisions of its nodes."""

    @property
    def name(self) -> str:
        """Name that a user understands."""

    @property
    def aspect(self) -> str:
        """Aspect that it decides on: of two changes of one aspect, one is taken."""

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """Another mapping."""


@dataclass(frozen=True, slots=True)
class ActivationObserver:
    """Another observer of all activations that have the default's."""

    aspect: ClassVar[str] = "activations"  # ranges of activations
    spec: ObserverSpec

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return f"activations by {self.spec.name}"

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping with this observer where the activations have the global entry's."""
        base = mapping.global_qconfig
        nodes = {name: self._changed(entry, base) for name, entry in mapping.nodes.items()}
        return replace(mapping, global_qconfig=self._changed(base, base), nodes=nodes)

    def _changed(self, entry: Entry, base: Entry) -> Entry:
        if not isinstance(entry, QConfig) or not isinstance(base, QConfig):
            return entry
        same = entry.activation == base.activation
        return replace(entry, activation=self.spec) if same else entry


def is_per_channel(spec: ObserverSpec) -> bool:
    """Whether an observer of weights finds a scale for each channel."""
    return spec().qscheme.per_channel


PER_TENSOR = NarrowRangeObserver.with_args(ch_axis=None)


@dataclass(frozen=True, slots=True)
class WeightsPerTensor:
    """One scale for each weight of some groups, where these have the global entry's observer.

    MatMuls take 0.9 of the time so, convolutions as long as with a scale per channel,
    and both lose decibels (benchmarks/results/moves.md).
    """

    aspect: ClassVar[str] = "weights"  # their scales
    groups: tuple[QuantizationGroup, ...]

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return f"weights per tensor: {Layers(self.groups).name}"

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping with one scale in the entries of these groups."""
        nodes, base = dict(mapping.nodes), mapping.global_qconfig
        for name in Layers(self.groups).node_group.nodes:
            entry = nodes.get(name)
            if entry is not None and base is not None and entry.weight == base.weight:
                nodes[name] = replace(entry, weight=PER_TENSOR)
        return replace(mapping, nodes=nodes)


@dataclass(frozen=True, slots=True)
class AlgorithmChange:
    """PTQ algorithm of the weights, which judges itself layer by layer (see onnxq.weights)."""

    which: str

    @property
    def name(self) -> str:
        """Name that a user understands."""
        return f"improve: {self.which}"

    @property
    def aspect(self) -> str:
        """The algorithm itself: others may follow it."""
        return self.which

    def applied(self, mapping: QConfigMapping) -> QConfigMapping:
        """The mapping that asks for it behind those that it asks for already."""
        return mapping.set_improve((*mapping.algorithms, self.which))


OTHER_OBSERVERS = (MinMaxObserver, PercentileObserver)
"""Observers of activations that are tried in place of the default's least squared error."""


def changes_of_the_whole(asked: QConfigMapping) -> list[ConfigChange]:
    """Changes of a whole model: other observers of activations."""
    return [*map(ActivationObserver, _other_observers(asked))]


def _other_observers(asked: QConfigMapping) -> list[ObserverSpec]:
    """Observers of activations other than the default's, for integers of the same type."""
    base = asked.global_qconfig
    if not isinstance(base, QConfig):
        return []
    dtype = base.activation_observer().dtype
    specs = [layer_type.with_args(dtype=dtype) for layer_type in OTHER_OBSERVERS]
    return [spec for spec in specs if spec.name != base.activation_observer.name]


@dataclass(frozen=True, slots=True)
class QuantizedAlone:
    """Mappings with groups in their precisions with the most integers, alone or together."""

    asked: QConfigMapping
    groups: tuple[QuantizationGroup, ...]

    def alone(self, layers: Layers) -> QConfigMapping:
        """The mapping in which all groups but those of the layers are in float."""
        mapping, inside = self.asked, {group.anchor.name for group in layers.groups}
        for group in self.groups:
            is_quantized = group.anchor.name in inside
            mapping = with_precision(
                mapping, group, group.lowest_precision if is_quantized else Precision.FLOAT
            )
        return mapping

    @property
    def together(self) -> QConfigMapping:
        """The mapping in which no group is in float."""
        return self.alone(Layers(self.groups))


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

    def node_precisions(self, begun: Mapping[str, Precision | None]) -> dict[str, Precision | None]:
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
