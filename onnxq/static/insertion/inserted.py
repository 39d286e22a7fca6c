"""Quantizer insertion, and all that follows from it without data: groups, scales, types, notes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxq.operator import Float
from onnxq.operator.reasons import LeftByRequest
from onnxq.static.insertion.channel_scales import find_channel_scales
from onnxq.static.insertion.check_types import check_types
from onnxq.static.insertion.clipped_outputs import with_clipped_outputs
from onnxq.static.insertion.groups import groups_of
from onnxq.static.insertion.overrides import check_overrides, unmet_precisions, unmet_requests
from onnxq.static.insertion.stored_types import storage_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.reason import Reason
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.insertion.channel_scales import ChannelScale
    from onnxq.static.insertion.context import Context
    from onnxq.static.insertion.decision import Decision
    from onnxq.static.insertion.groups import TensorGroup
    from onnxq.static.insertion.insert_quantizers import QuantizerInsertion


@dataclass(frozen=True, slots=True)
class Inserted:
    """Decisions on a canonical model, and the tensors that they quantize.

    Attributes:
        decisions: node name -> Quantize or Float(reason), in graph order, subgraphs included.
        groups: the quantized activation tensors.
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
    """The Placed of a canonical model, with this qconfig in place of the asked one.

    Args:
        context: of the model.
        qconfig: names what was decided.
        insertion: made with it.
    Raises:
        QConfigError: the qconfig names an observer for a tensor where it cannot take effect.
        UnsupportedError: it asks for number types that ONNX Runtime lacks.
    """
    model = context.model
    decisions, clamps = insertion.decisions, insertion.clamps
    channel_scales = find_channel_scales(model, insertion, qconfig)
    groups = groups_of(insertion, qconfig, channel_scales)
    groups = with_clipped_outputs(groups, model, decisions, qconfig)
    notes = check_overrides(model, decisions, insertion.quantized, qconfig)
    notes += unmet_requests(model, decisions, qconfig)
    notes += unmet_precisions(model, decisions, qconfig)
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
        name: Float(reasons[name]) if name in reasons and _is_left(decision) else decision
        for name, decision in found.decisions.items()
    }
    return replace(found, decisions=decisions)


def _is_left(decision: Decision) -> bool:
    return isinstance(decision, Float) and isinstance(decision.reason, LeftByRequest)
