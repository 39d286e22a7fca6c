"""Groups of tensors that have one set of qparams, with their observers."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from onnxq.dtypes import QDType
from onnxq.observers import ObserverSpec
from onnxq.qconfig import QConfigMapping
from onnxq.static.insertion.channel_scales import ChannelScale, channel_observer
from onnxq.static.insertion.insert_quantizers import QuantizerInsertion
from onnxq.static.insertion.overrides import group_override


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Tensors that have one set of qparams, because nodes between them only copy.

    Attributes:
        sources: the members that are not copies of others and are known at run time only.
        observer: how qparams come from the data.
        dtype: of the integers in the model: the observer's, or UINT8 in place of INT8.
        range: real interval that replaces observation where an operator guarantees it (Sigmoid).
        clipped_outputs: members that have what is read of the sources; empty: the sources
            themselves.
    """

    members: tuple[str, ...]
    sources: tuple[str, ...]
    constants: tuple[str, ...]
    observer: ObserverSpec
    dtype: QDType
    range: tuple[float, float] | None = None
    clipped_outputs: tuple[str, ...] = ()

    @property
    def observed(self) -> tuple[str, ...]:
        """The tensors that its range is taken from."""
        return self.clipped_outputs or self.sources


def groups_of(
    insertion: QuantizerInsertion,
    qconfig: QConfigMapping,
    channel_scales: Mapping[str, ChannelScale],
) -> tuple[TensorGroup, ...]:
    """The groups of the quantized tensors, in graph order."""
    members: dict[str, list[str]] = {}
    for tensor in insertion.quantized:
        members.setdefault(insertion.root(tensor), []).append(tensor)
    groups = (_group(tensors, insertion, qconfig) for tensors in members.values())
    return tuple(
        replace(group, observer=channel_observer(group.observer))
        if group.members[0] in channel_scales
        else group
        for group in groups
    )


def _group(
    tensors: list[str], insertion: QuantizerInsertion, qconfig: QConfigMapping
) -> TensorGroup:
    copies = insertion.shared_outputs | insertion.constants
    sources = tuple(t for t in tensors if t not in copies)
    constants = tuple(t for t in tensors if t in insertion.constants)
    ranges = {insertion.ranges.get(t) for t in sources}
    override = group_override(tensors, qconfig)
    by_nature = len(ranges) == 1 and not constants and override is None
    observer = override or _observer(tensors, insertion, qconfig)
    return TensorGroup(
        tuple(tensors),
        sources,
        constants,
        observer,
        observer().dtype,
        ranges.pop() if by_nature else None,
    )


def _observer(
    tensors: list[str], insertion: QuantizerInsertion, qconfig: QConfigMapping
) -> ObserverSpec:
    """The observer that the qconfig names for the node of one of the group's tensors."""
    for tensor in tensors:
        if tensor in insertion.owners:
            chosen = qconfig.for_node(*insertion.owners[tensor])
            assert chosen is not None  # a node without a qconfig is float and owns nothing
            return chosen.activation_observer
    raise AssertionError(f"no node owns any of {tensors}")


def observers_of(groups: Iterable[TensorGroup]) -> dict[str, ObserverSpec]:
    """Tensor name -> observer, of every tensor of the groups that has to be observed."""
    return {
        source: group.observer
        for group in groups
        if group.range is None
        for source in group.observed
    }


def as_observed(
    groups: Iterable[TensorGroup], observers: Mapping[str, ObserverSpec]
) -> tuple[TensorGroup, ...]:
    """The groups with the observers that look at their sources, where these are of one mind."""
    found = []
    for group in groups:
        specs = {observers.get(source, group.observer) for source in group.observed}
        known = group.range is None and len(specs) == 1
        found.append(replace(group, observer=specs.pop()) if known else group)
    return tuple(found)


def with_stand_ins(
    groups: Iterable[TensorGroup], seen: Container[str], every: Iterable[TensorGroup]
) -> tuple[TensorGroup, ...]:
    """The groups; sources and constants stand in for a tensor that is not seen, being a copy."""
    homes = {member: group for group in every for member in group.members}
    found = []
    for group in groups:
        stand_ins, constants = [], [*group.constants]
        for source in group.observed:
            home = None if source in seen else homes.get(source)
            if home is None:
                stand_ins.append(source)
            else:
                is_seen = any(t in seen for t in home.observed)
                stand_ins += home.observed if is_seen else home.sources
                constants += () if is_seen or home.sources else home.constants
        sources = group.sources if stand_ins else ()  # a table alone says what it holds
        known = tuple(dict.fromkeys(constants))
        stand_for = tuple(dict.fromkeys(stand_ins))
        found.append(replace(group, sources=sources, constants=known, clipped_outputs=stand_for))
    return tuple(found)
