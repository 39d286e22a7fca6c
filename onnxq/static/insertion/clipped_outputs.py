"""Tensors that others only take a part of: maxima, or what a Clip lets through.

    x -> MaxPool -> y, x -> Clip -> y       nobody else reads x: its integers matter where y has
    them

One set of qparams serves x and y. Ranged by x, the integers would be spent on values that nobody
sees: below every maximum, or beyond the bounds. Worse, the least squared error over x clips the few
largest values, which are those that a maximum takes. Ranged by y, they are cut off at the ends of
the range, as the node cuts them off itself. So the group is observed at y.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import OpCategory
from onnxq.static.insertion.decision import Quantize
from onnxq.static.insertion.overrides import group_override

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import onnx_ir as ir

    from onnxq.operator import Rule
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.insertion.decision import Decision
    from onnxq.static.insertion.groups import TensorGroup

    _LastMembers = tuple[tuple[str, ...], bool]
    """Last copies of what is read of a value; whether they lack some of its values."""


def with_clipped_outputs(
    groups: tuple[TensorGroup, ...],
    model: ir.Model,
    decisions: Mapping[str, Decision],
    qconfig: QConfigMapping,
) -> tuple[TensorGroup, ...]:
    """The groups, observed where what is read of their sources has arrived.

    Args:
        groups: of one insertion.
        model: canonical.
        decisions: of the insertion.
        qconfig: where it names the observer of a group's tensor, that one sees the sources.
    """
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
        and group_override(group.members, qconfig) is None
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
        is_part |= _takes_part(decision.rule)
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


def _takes_part(rule: Rule) -> bool:
    """Whether values may be missing behind it, which the range need not hold then."""
    return rule.category is OpCategory.CLAMP or rule.selects or rule.shrinks
