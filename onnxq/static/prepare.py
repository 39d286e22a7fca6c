"""Decides without data where quantizers go: nodes are Quantize or Float, tensors get observers."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from onnxq import targets
from onnxq.core.collector import without_collector
from onnxq.graph.canonical import Canonical, canonicalize
from onnxq.graph.edit import divider_name
from onnxq.graph.io import load, model_hash
from onnxq.graph.pixels import quantized_pixels, take_pixels
from onnxq.graph.walk import tensor_names, walk
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig import Choice, QConfigMapping, default_qconfig_mapping
from onnxq.qconfig.names import absent_op_types, excluding
from onnxq.qconfig.quantized_input import (
    Asked,
    Pixels,
    QuantizedInput,
    as_quantized_input,
    as_quantized_output,
    check_end,
)
from onnxq.quantized.outcome import Outcome
from onnxq.samples.state import check_feedback
from onnxq.static.arguments import check_costs, mapping_from
from onnxq.static.choosing.proposals import Decided, SoFar
from onnxq.static.deciders import BY_RULES, BY_STATE, by_rules
from onnxq.static.insertion.context import Context, Rules
from onnxq.static.insertion.decision import Quantize
from onnxq.static.insertion.groups import TensorGroup, as_observed, observers_of, with_stand_ins
from onnxq.static.origin import suit_kernels
from onnxq.static.prepared import ModelSource, Prepared
from onnxq.targets import Target
from onnxq.times import Costs
from onnxq.times.time_model import TimeSource

LOG = logging.getLogger(__name__)


@without_collector()
def prepare(
    model: ModelSource | Canonical,
    qconfig: QConfigMapping | str | Path | None = None,
    target: str | Target | None = None,
    feedback: Mapping[str, str] | None = None,
    *,
    quantized_input: Mapping[str, Asked] | None = None,
    quantized_output: Sequence[str] = (),
    costs: Costs | None = None,
    exclude: Collection[str] = (),
) -> Prepared:
    """A Prepared: the canonical graph, a decision for every node, an observer for every tensor.

    Args:
        model: path, ModelProto or onnx_ir.Model, or a Canonical of one; it is not changed. A
            Canonical of a module that trains is taken as it is.
        qconfig: what to quantize and how, or the path of a YAML file that says it; None: onnxq's
            default for every operator, or, for the targets "fbgemm" and "qnnpack", the QConfig that
            PyTorch documents for that backend.
        target: name or value; None: `targets.get_default()`, which is "portable" unless set.
        feedback: {output name: input name} of state that each batch hands to the next one.
        quantized_input: {input name: "pixels", Pixels(mean, std, scale), or "integers"} of inputs
            that the quantized model takes as uint8; see onnxq.qconfig.quantized_input.
        quantized_output: names of outputs that it gives as integers.
        costs: times of nodes on a machine of the target, which decide where integers pay; None:
            the target's own table (onnxq.times.costs_of), where it has one.
        exclude: names or globs of nodes that stay in float, whatever the qconfig says.
    Raises:
        ModelError: the model is unreadable, quantized already, or of a refused type or opset.
        QConfigError: the qconfig, target or feedback names what is not there, or the qconfig names
            an observer for a tensor where it cannot take effect; the costs are of another target.
        UnsupportedError: the qconfig asks for number types that ONNX Runtime lacks.
    """
    given = mapping_from(qconfig, backend_of(target))
    chosen = targets.resolve(target)
    check_costs(costs)
    if costs is not None:
        costs.check_target(chosen.name)
    mapping = given if given is not None else default_qconfig_mapping(backend_of(target))
    mapping = replace(mapping, nodes=excluding(mapping.nodes, exclude))
    wishes, integers_out = (
        as_quantized_input(quantized_input),
        as_quantized_output(quantized_output),
    )
    if isinstance(model, Canonical):
        canonical = model if model.trains else model.copy()  # its graph is changed
    else:
        canonical = canonicalize(load(model), types_by_run)
    for name in integers_out:
        check_end("output", name, [str(value.name) for value in canonical.model.graph.outputs])
    on_pixels = take_pixels(canonical.model, quantized_pixels(canonical.model, wishes))
    _check_names(canonical.model, mapping)
    check_feedback(canonical.model, feedback or {})
    source_hash = model_hash(canonical.model)  # of what `verify` has of the same model
    if not canonical.trains:  # modules have pools there, and channels of their own
        suit_kernels(canonical.model, mapping.op_types)
    asked = _Request(mapping, chosen, wishes, integers_out, costs, dict(feedback or {}))
    made = _decided(canonical.model, source_hash, asked, (*canonical.notes, *on_pixels))
    quantized = sum(isinstance(decision, Quantize) for decision in made.decisions.values())
    LOG.info(
        "prepared for %s: %d of %d nodes on integers", chosen.name, quantized, len(made.decisions)
    )
    return made.read_from(model) if isinstance(model, str | Path) else made


def prepared_with(begun: Prepared, mapping: QConfigMapping) -> Prepared:
    """The same model with a qconfig that names precisions; equal to what `prepare` gives of it.

    What could be chosen, and is observed for that, is taken over: half of the work, and more.
    """
    _check_names(begun.model, mapping)
    notes = begun.notes[: begun.model_notes]
    return _decided(begun.model, begun.model_hash, _request_of(begun, mapping), notes, begun)


def _check_names(model: ir.Model, mapping: QConfigMapping) -> None:
    """Raises QConfigError where the mapping names what the canonical model does not have."""
    nodes = [node for node, _ in walk(model.graph)]
    tensors = tensor_names(model)
    names = {node.name for node in nodes if node.name}
    if mapping.algorithms:  # a qconfig that was saved names nodes that PTQ algorithms will add, too
        names |= set(map(divider_name, tensors))
    mapping.check({node.op_type for node in nodes}, names, tensors)


def prepared_again(
    prepared: Prepared,
    model: ir.Model,
    outcomes: tuple[Outcome, ...] = (),
    mapping: QConfigMapping | None = None,
) -> Prepared:
    """The same request, or another mapping, for a canonical model that computes the same."""
    notes = prepared.notes[: prepared.model_notes]
    name = prepared.model_hash if model is prepared.model else model_hash(model)
    return replace(
        _decided(model, name, _request_of(prepared, mapping or prepared.qconfig), notes),
        source_hash=prepared.source_hash or prepared.model_hash,
        outcomes=(*prepared.outcomes, *outcomes),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Wishes about a model; see `prepare`."""

    mapping: QConfigMapping
    target: Target
    quantized_input: Mapping[str, QuantizedInput | Pixels]
    quantized_output: tuple[str, ...]
    costs: TimeSource | None
    feedback: Mapping[str, str]


def _request_of(prepared: Prepared, mapping: QConfigMapping) -> _Request:
    """The request that was made for the Prepared, with that mapping."""
    return _Request(
        mapping,
        prepared.target,
        prepared.quantized_input,
        prepared.quantized_output,
        prepared.costs,
        prepared.feedback,
    )


def _decided(
    model: ir.Model,
    name: str,
    asked: _Request,
    notes: tuple[str, ...],
    begun: Prepared | None = None,
) -> Prepared:
    """The Prepared of a canonical model of that hash."""
    mapping = asked.mapping
    context = Context(
        model,
        Rules.of_model(model) if begun is None else begun.rules,
        asked.target,
        mapping,
        asked.quantized_output,
        asked.feedback,
    )
    so_far = _decided_without_data(context)
    found, open_precisions = so_far.inserted, mapping.without_precisions()
    if begun is not None:
        every = begun.in_integers
    elif open_precisions != so_far.decided.mapping:
        every = SoFar(context, Decided(open_precisions)).inserted.groups
    else:
        every = found.groups
    groups = found.groups
    if open_precisions != mapping:  # observed as if they were still to be chosen: the same numbers
        seen = (
            set(begun.observed)
            if begun
            else _observed(replace(context, asked=open_precisions), every)
        )
        groups = with_stand_ins(groups, seen, every)
    absent = absent_op_types([node for node, _ in context.order], mapping.op_types)
    return Prepared(
        model=model,
        model_hash=name,
        target=asked.target,
        qconfig=mapping,
        rules=context.rules,
        chosen=so_far.decided,
        decisions=found.decisions,
        groups=as_observed(groups, observers_of(every)),
        clamps=found.clamps,
        channel_scales=found.channel_scales,
        in_integers=every,
        feedback=asked.feedback,
        notes=(*notes, *found.notes, *absent),
        quantized_input=asked.quantized_input,
        quantized_output=asked.quantized_output,
        costs=asked.costs,
        model_notes=len(notes),
    )


def _observed(context: Context, every: tuple[TensorGroup, ...]) -> set[str]:
    """Tensors that are observed where precisions are open."""
    ruled = _decided_without_data(context).inserted
    return {*observers_of(every), *observers_of(ruled.groups)}


def _decided_without_data(context: Context) -> SoFar:
    """Decisions that need no data."""
    so_far = SoFar(context, Decided(context.asked))
    if context.asked.choice is not Choice.BEST:
        return so_far
    return by_rules(so_far, (*BY_STATE, *BY_RULES))


def backend_of(target: str | Target | None) -> str:
    """PyTorch's name of the backend where the target is given by it, else the empty string."""
    return target if isinstance(target, str) and target in targets.BACKENDS else ""
