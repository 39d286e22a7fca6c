"""Quantizer insertion, and all that follows from it without data: groups, scales, types, notes.

Tensors that others only take a part of: maxima, or what a Clip lets through.

    x -> MaxPool -> y, x -> Clip -> y       nobody else reads x: its integers matter where y has
    them

One set of qparams serves x and y. Ranged by x, the integers would be spent on values that nobody
sees: below every maximum, or beyond the bounds. Worse, the least squared error over x clips the few
largest values, which are those that a maximum takes. Ranged by y, they are cut off at the ends of
the range, as the node cuts them off itself. So the group is observed at y.

The type that int8 activations are stored in: uint8, unless the target runs int8 ones.

    q + 128, zero_point + 128:       (q - zero_point) * scale is the same number

ONNX Runtime fuses Conv and MatMul with int8 activations on ARM. On x86 it turns them into uint8 by
itself, but only where a Q has one DQ behind it, and that one reader: not behind a Clip on integers,
which a Relu of a symmetric range becomes, and not where a tensor branches. The rest computes in
float32. Stored as uint8 from the start, all of it runs in integers on every machine.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq.core.reason import Reason
from onnxq.dtypes import INT8, UINT8, QDType, in_bytes
from onnxq.errors import listed
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import Float, OpCategory
from onnxq.operator.reasons import LeftByRequest
from onnxq.qconfig import QConfigMapping
from onnxq.static.insertion import overrides
from onnxq.static.insertion.channel_scales import ChannelScale, find_channel_scales
from onnxq.static.insertion.check_types import check_types
from onnxq.static.insertion.context import Context
from onnxq.static.insertion.decision import Decision, Quantize, weight_observer
from onnxq.static.insertion.groups import TensorGroup, groups_of
from onnxq.static.insertion.insert_quantizers import QuantizerInsertion
from onnxq.targets import Target

_LastMembers = tuple[tuple[str, ...], bool]
"""Last copies of what is read of a value; whether they lack some of its values."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """Decisions on a canonical model, and the tensors that they quantize.

    Attributes:
        decisions: node name -> Quantize or Float(reason), in graph order, subgraphs included.
        clamps: tensor -> real bounds of the Relu and Clip that were folded into its Q.
        channel_scales: the tensors that may carry a factor per channel.
        notes: types and entries of the qconfig that a user should know of.
    """

    decisions: Mapping[str, Decision]
    groups: tuple[TensorGroup, ...]
    clamps: Mapping[str, tuple[float, float]]
    channel_scales: Mapping[str, ChannelScale]
    notes: tuple[str, ...]


def inserted(context: Context, qconfig: QConfigMapping, insertion: QuantizerInsertion) -> Inserted:
    """A canonical model with its quantizers, for this qconfig in place of the asked one."""
    model = context.model
    decisions, clamps = insertion.decisions, insertion.clamps
    channel_scales = find_channel_scales(model, insertion, qconfig)
    groups = groups_of(insertion, qconfig, channel_scales)
    groups = with_clipped_outputs(groups, model, decisions, qconfig)
    notes = overrides.check_overrides(model, decisions, insertion.quantized, qconfig)
    notes += overrides.unmet_requests(model, decisions, qconfig)
    notes += overrides.unmet_precisions(model, decisions, qconfig)
    shared = [(group.members, group.observer) for group in groups]
    notes += check_types(model, decisions, shared, clamps, qconfig)
    types = {tensor: group.dtype for group in groups for tensor in group.members}
    storage = storage_of(model, decisions, types, qconfig, context.target)
    return Inserted(
        decisions,
        tuple(replace(group, dtype=storage.of(group.dtype)) for group in groups),
        clamps,
        channel_scales,
        (*notes, *storage.notes),
    )


def with_reasons(found: Inserted, reasons: Mapping[str, Reason]) -> Inserted:
    """The insertion, with these reasons of nodes that the qconfig leaves in float."""
    decisions = {
        name: Float(reasons[name])
        for name, decision in found.decisions.items()
        if name in reasons and isinstance(decision, Float)
        if isinstance(decision.reason, LeftByRequest)
    }
    return replace(found, decisions={**found.decisions, **decisions})


def with_clipped_outputs(
    groups: tuple[TensorGroup, ...],
    model: ir.Model,
    decisions: Mapping[str, Decision],
    qconfig: QConfigMapping,
) -> tuple[TensorGroup, ...]:
    """The groups, observed where what is read of their sources has arrived."""
    values = {value_name(v): v for v in model.graph.inputs}
    values |= {value_name(v): v for node, _ in walk(model.graph) for v in node.outputs if v.name}
    places = {name: place for place, name in enumerate(values)}
    return tuple(
        replace(
            group,
            clipped_outputs=_clipped_outputs(group, _in_order(group, values, places), decisions),
        )
        if len(group.members) > 1
        and group.range is None
        and overrides.group_override(group.members, qconfig) is None
        else group
        for group in groups
    )


def _in_order(
    group: TensorGroup, values: Mapping[str, ir.Value], places: Mapping[str, int]
) -> dict[str, ir.Value]:
    """The group's tensors without its constants, in the order in which the model has them."""
    names = sorted(filter(places.__contains__, group.members), key=places.__getitem__)
    return {name: values[name] for name in names}


def _clipped_outputs(
    group: TensorGroup, values: dict[str, ir.Value], decisions: Mapping[str, Decision]
) -> tuple[str, ...]:
    """Members to be observed in place of the sources, in their order; values are the group's."""
    members = set(group.members)
    behind: dict[str, _LastMembers] = {}
    for name in reversed(values):
        behind[name] = _last_members(values[name], members, decisions, behind)
    found: dict[str, None] = {}
    for source in group.sources:
        last_members, is_part = behind[source]
        found |= dict.fromkeys(last_members if is_part else (source,))
    return tuple(found)


def _last_members(
    value: ir.Value,
    members: Collection[str],
    decisions: Mapping[str, Decision],
    behind: Mapping[str, _LastMembers],
) -> _LastMembers:
    """The last members behind one, from those of all that is computed behind it."""
    copies: dict[str, None] = {}
    is_part = False
    for use in value.uses():
        decision = decisions[node_name(use.node)]
        if not isinstance(decision, Quantize) or not _copies(decision, use.idx, members):
            return (value_name(value),), False
        rule = decision.rule  # behind it, values may be missing, which the range need not hold
        is_part |= rule.category is OpCategory.CLAMP or rule.selects or rule.shrinks
        copies |= {v.name: None for v in use.node.outputs if v.name in decision.results}
    if value.is_graph_output() or not copies:
        return (value_name(value),), False
    last_members: dict[str, None] = {}
    for copy in copies:
        last, lacks = behind[copy]
        is_part |= lacks
        last_members |= dict.fromkeys(last if lacks else (copy,))
    return tuple(last_members), is_part


def _copies(decision: Quantize, slot: int, members: Collection[str]) -> bool:
    """Whether all that the node makes of what it reads in that slot are members."""
    if decision.folded_into or slot not in decision.rule.activations or not decision.results:
        return False
    return all(tensor in members for tensor in decision.results)


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """How int8 activations are stored.

    Attributes:
        int8: the type of integers that observers give as int8: INT8 or UINT8.
        notes: what a user should know of it; none where no activation is int8.
    """

    int8: QDType
    notes: tuple[str, ...] = ()

    def of(self, dtype: QDType) -> QDType:
        """The type that integers of that type are stored in."""
        return self.int8 if dtype == INT8 else dtype


def storage_of(
    model: ir.Model,
    decisions: Mapping[str, Decision],
    tensors: Mapping[str, QDType],
    qconfig: QConfigMapping,
    target: Target,
) -> Storage:
    """The Storage of a model: int8 where the target runs it and nothing in the model is uint8."""
    signed = [tensor for tensor, dtype in tensors.items() if dtype == INT8]
    if not signed:
        return Storage(INT8)
    which = f"int8 activations ({listed(signed)})"
    as_uint8 = "are stored as uint8 with zero_point + 128, which stands for the same numbers"
    if not target.int8_activations:
        return Storage(
            UINT8,
            (
                f"{which} {as_uint8}: with int8 integers ONNX Runtime on x86 computes Conv and "
                "MatMul in float32 behind branches and behind a Relu on symmetric integers",
            ),
        )
    if UINT8 in tensors.values() or UINT8 in _weight_types(model, decisions, qconfig):
        return Storage(
            UINT8,
            (
                f"{which} {as_uint8}: other activations or weights are uint8, which ONNX Runtime "
                "has no kernels for together with int8 activations",
            ),
        )
    return Storage(
        INT8,
        (
            f"{which} stay int8, which {target} runs in integers. ONNX Runtime on x86 computes "
            "such a QDQ model in float32 in part: use target 'portable' for both",
        ),
    )


def _weight_types(
    model: ir.Model, decisions: Mapping[str, Decision], qconfig: QConfigMapping
) -> set[QDType]:
    found = set()
    for node, _ in walk(model.graph):
        decision = decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.folded_into:
            continue
        if decision.rule.weight is not None:
            found.add(in_bytes(weight_observer(node, decision.rule, qconfig)().dtype))
    return found
