"""Decides placement without data: every node Quantize or Float(reason), tensors their observers."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from onnxq import targets
from onnxq.errors import CalibrationError
from onnxq.graph.annotations import Annotations
from onnxq.graph.canonical import Canonical, canonicalize
from onnxq.graph.collector import without_collector
from onnxq.graph.edit import divider_name
from onnxq.graph.io import load, model_hash
from onnxq.graph.pixels import coded_pixels, take_pixels
from onnxq.graph.saving import to_bytes
from onnxq.graph.walk import tensor_names, walk
from onnxq.ort.types_by_run import types_by_run
from onnxq.qconfig import Choice, QConfigMapping, default_qconfig_mapping
from onnxq.qconfig.absent import absent_op_types
from onnxq.qconfig.input_codes import as_input_codes, as_output_codes, check_end
from onnxq.samples import InputSpec, input_specs, open_samples
from onnxq.samples.excerpt import Excerpt
from onnxq.samples.state import check_feedback
from onnxq.static.arguments import check_mapping
from onnxq.static.calibration import Calibration
from onnxq.static.choosing.choices import Choices, choices_of
from onnxq.static.choosing.named_forms import NamedForms
from onnxq.static.choosing.rules import by_rules
from onnxq.static.noise.watched import watched
from onnxq.static.origin import Origin, read_again, suit_kernels
from onnxq.static.placing.decision import Decision, Quantize
from onnxq.static.placing.groups import (
    TensorGroup,
    as_observed,
    observers_of,
    with_stand_ins,
)
from onnxq.static.placing.placed import placed, with_reasons
from onnxq.static.planning.input_means import averaged
from onnxq.targets.range_reduction import as_range_reduction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from onnxq.costs import Costs
    from onnxq.observers import ObserverSpec
    from onnxq.operator import Float
    from onnxq.qconfig.input_codes import Asked, InputCodes, Pixels
    from onnxq.quantized.outcome import Outcome
    from onnxq.static.placing.channel_gains import ChannelGain
    from onnxq.static.statistics import Statistics
    from onnxq.targets import Target
    from onnxq.targets.range_reduction import RangeReduction

ModelSource = str | Path | onnx.ModelProto | ir.Model

__all__ = ["Decision", "Prepared", "Quantize", "TensorGroup", "prepare"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A canonical float model, and what is to become of each node and tensor.

    Attributes:
        model: canonical float graph; treat it as read-only.
        model_hash: names graph and weights; Statistics and Plan carry it. It stays where
            constants are improved.
        target: the machine that the model is for.
        qconfig: what was asked for.
        chosen: the same with the forms that were chosen without data, and why.
        decisions: node name -> Quantize or Float(reason), in graph order, subgraphs included.
        groups: the quantized activation tensors.
        clamps: tensor -> real bounds of the Relu and Clip that were folded into its Q.
        channel_gains: the tensors that may carry a factor per channel.
        in_integers: groups of the tensors with every node in integers that can be: what the data
            may speak for. They are observed too.
        feedback: output name -> input name, for models whose state goes round.
        notes: what canonicalization did, and types and entries that a user should know of.
        input_codes: inputs of the quantized model that are pixels or codes; pixels are uint8 in
            `model` already.
        output_codes: outputs of the quantized model that are codes.
        costs: times of nodes, which `plan` weighs; None: the target's table, where it has one.
        left: nodes that stay in float whatever is chosen, and why.
        source_hash: names the float model as it was given, which `verify` compares with; another
            than model_hash where an improvement made an equal model of it. Empty: the same.
        improvements: what became of the improvements so far.
        model_notes: how many of the notes, the first ones, are on the model alone.
        origin: the file that the model was read from; None: it was given in memory.
        aim: the model as it was before its constants were improved, which computes what is aimed
            at; None: `model` does.
    """

    model: ir.Model = field(repr=False)  # pages of text
    model_hash: str
    target: Target
    qconfig: QConfigMapping
    chosen: NamedForms
    decisions: Mapping[str, Decision]
    groups: tuple[TensorGroup, ...]
    clamps: Mapping[str, tuple[float, float]]
    channel_gains: Mapping[str, ChannelGain]
    in_integers: tuple[TensorGroup, ...]
    feedback: Mapping[str, str]
    notes: tuple[str, ...]
    input_codes: Mapping[str, InputCodes | Pixels] = field(default_factory=dict)
    output_codes: tuple[str, ...] = ()
    costs: Costs | None = field(default=None, repr=False)
    left: Mapping[str, Float] = field(default_factory=dict)
    source_hash: str = ""
    improvements: tuple[Outcome, ...] = ()
    model_notes: int = 0
    origin: Origin | None = field(default=None, repr=False)
    aim: ir.Model | None = field(default=None, repr=False)
    _calibration: list[Calibration] = field(default_factory=list, repr=False)  # begun by run()
    _excerpt: list[Excerpt] = field(default_factory=list, repr=False)  # likewise

    @property
    def observed(self) -> dict[str, ObserverSpec]:
        """Tensor name -> observer, for every tensor that calibration looks at."""
        return {**observers_of(self.in_integers), **observers_of(self.groups)}

    @property
    def choices(self) -> Choices:
        """Node name -> its form as far as it can be told without data, and why."""
        throughput = self.target.throughput
        return choices_of(self.model, self.decisions, self.chosen.reasons, throughput)

    @property
    def watched(self) -> dict[str, ObserverSpec]:
        """Tensor name -> observer, for tensors that tell more than ranges.

        Errors grow behind some (see static/noise); by the means of others, weights are rounded.
        """
        means = averaged(self.model, self.decisions, self.target)
        return {**means, **watched(self.model)}

    def run(self, batch: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Observes one batch ({input name: array}), after those that came before it.

        Raises:
            CalibrationError: an input is missing, misnamed, of another shape or dtype, NaN or Inf.
        """
        if not self._calibration:
            self._calibration.append(Calibration(self))
            self._excerpt.append(self.new_excerpt())
        calibration = self._calibration[0]
        for checked in open_samples([batch], calibration.inputs):
            calibration.observe(checked)
            self._excerpt[0].offer(checked)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Inputs that samples hold; those that are fed back are optional."""
        return input_specs(self.model, set(self.feedback.values()))

    @property
    def excerpt(self) -> Excerpt:
        """A few of the batches that `run` has observed, to try the quantized model on."""
        return self._excerpt[0] if self._excerpt else self.new_excerpt()

    def new_excerpt(self) -> Excerpt:
        """An Excerpt of samples that are still to come."""
        return Excerpt(self.inputs, self.feedback.values())

    def leaving(self, floats: Mapping[str, Float]) -> Prepared:
        """The same with these nodes left in float; the observed tensors stay as they are."""
        left = {**self.left, **floats}
        return replace(self, decisions={**self.decisions, **left}, left=left)

    def read_from(self, path: str | Path) -> Prepared:
        """Prepared that knows the file its model was read from, and so pickles as its path."""
        return replace(self, origin=Origin.of(path, self.model))

    def __reduce__(self) -> tuple[Callable[..., Prepared], tuple[object, ...]]:
        """Pickles as the path of its model's file, read again where it is unpickled.

        With the bytes of the model where it was given in memory, or edited since it was read.

        Raises:
            ModelError: such a model is too large for protobuf. Save it, and prepare the file.
        """
        apart = ("model", "aim")
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        begun = [calibration.statistics() for calibration in others.pop("_calibration")]
        origin = others.pop("origin")
        if origin is not None and origin.gives(self.model):
            return _read_again, (origin.path, others, begun)
        models = [  # with the sizes that rewriting asks for
            None if model is None else to_bytes(model, Annotations.KEPT)
            for model in (self.model, self.aim)
        ]
        return _restored, (models, others, begun)

    @property
    def statistics(self) -> Statistics:
        """Statistics of what `run` has observed so far.

        Raises:
            CalibrationError: `run` was never called.
        """
        if not self._calibration:
            raise CalibrationError("no batch was observed; call run(batch) first, or calibrate().")
        return self._calibration[0].statistics()


def _restored(
    models: list[bytes | None], others: dict[str, Any], begun: list[Statistics]
) -> Prepared:
    """The Prepared whose parts `__reduce__` gave."""
    model, aim = (None if m is None else load(onnx.ModelProto.FromString(m)) for m in models)
    assert model is not None, "every Prepared has one"
    return _with_begun(Prepared(model, aim=aim, **others), begun)


def _read_again(path: Path, others: dict[str, Any], begun: list[Statistics]) -> Prepared:
    """Prepared of a model in a file.

    Raises:
        ModelError: the file is not there, or holds another model by now.
    """
    op_types = others["qconfig"].op_types
    model = read_again(path, others["model_hash"], others["input_codes"], op_types)
    return _with_begun(Prepared(model, origin=Origin.of(path, model), **others), begun)


def _with_begun(prepared: Prepared, begun: list[Statistics]) -> Prepared:
    prepared._calibration.extend(Calibration(prepared, seen) for seen in begun)  # noqa: SLF001  # of this module
    return prepared


@without_collector()
def prepare(
    model: ModelSource | Canonical,
    qconfig: QConfigMapping | None = None,
    target: str | Target | None = None,
    feedback: Mapping[str, str] | None = None,
    range_reduction: RangeReduction | str | None = None,
    *,
    input_codes: Mapping[str, Asked] | None = None,
    output_codes: Sequence[str] = (),
    costs: Costs | None = None,
) -> Prepared:
    """A Prepared: the canonical graph, a decision for every node, an observer for every tensor.

    Args:
        model: path, ModelProto or onnx_ir.Model, or a Canonical of one; it is not changed. A
            Canonical of a module that trains is taken as it is.
        qconfig: what to quantize and how; None: onnxq's default for every operator, or, for the
            targets "fbgemm" and "qnnpack", the QConfig that PyTorch documents for that backend.
        target: name or value; None: `targets.get_default()`, which is "portable" unless set.
        feedback: {output name: input name} of state that each batch hands to the next one.
        range_reduction: where weights give up range so that pairs of products fit int16; None: the
            target's own, which is "worst-case".
        input_codes: {input name: "pixels", Pixels(mean, std, scale), or "codes"} of inputs that
            the quantized model takes as uint8; see onnxq.qconfig.input_codes.
        output_codes: names of outputs that it gives as codes.
        costs: times of nodes on a machine of the target, which decide where integers pay; None:
            the target's own table (onnxq.costs.of), where it has one.

    Raises:
        ModelError: the model is unreadable, quantized already, or of a refused type or opset.
        QConfigError: the qconfig, target, range reduction or feedback names what is not there, or
            the qconfig names an observer for a tensor where it cannot take effect; the costs are
            of another target.
        UnsupportedError: the qconfig asks for number types that ONNX Runtime lacks.
    """
    check_mapping(qconfig)
    chosen = targets.resolve(target)
    if range_reduction is not None:
        chosen = replace(chosen, range_reduction=as_range_reduction(range_reduction))
    if costs is not None:
        costs.check_target(chosen.name)
    mapping = qconfig if qconfig is not None else default_qconfig_mapping(backend_of(target))
    wishes, codes_out = as_input_codes(input_codes), as_output_codes(output_codes)
    canonical = _canonical(model)
    for name in codes_out:
        check_end("output", name, [str(value.name) for value in canonical.model.graph.outputs])
    on_pixels = take_pixels(canonical.model, coded_pixels(canonical.model, wishes))
    nodes = [node for node, _ in walk(canonical.model.graph)]
    tensors = tensor_names(canonical.model)
    names = {node.name for node in nodes if node.name}
    if mapping.improve:  # a qconfig that was saved names nodes that improvements will add, too
        names |= set(map(divider_name, tensors))
    mapping.check({node.op_type for node in nodes}, names, tensors)
    check_feedback(canonical.model, feedback or {})
    source_hash = model_hash(canonical.model)  # of what `verify` has of the same model
    if not canonical.trains:  # modules have pools there, and channels of their own
        suit_kernels(canonical.model, mapping.op_types)
    asked = _Request(mapping, chosen, wishes, codes_out, costs, dict(feedback or {}))
    notes = (*canonical.notes, *on_pixels)
    made = _decided(canonical.model, source_hash, asked, notes)
    return made.read_from(model) if isinstance(model, str | Path) else made


def prepared_again(
    prepared: Prepared, model: ir.Model, outcomes: tuple[Outcome, ...] = ()
) -> Prepared:
    """The same request for another canonical model that computes the same.

    Args:
        prepared: of the model so far.
        model: made from a clone of its model; the weights differ.
        outcomes: what the improvement did.
    """
    asked = _Request(
        prepared.qconfig,
        prepared.target,
        prepared.input_codes,
        prepared.output_codes,
        prepared.costs,
        prepared.feedback,
    )
    notes = prepared.notes[: prepared.model_notes]
    return replace(
        _decided(model, model_hash(model), asked, notes),
        source_hash=prepared.source_hash or prepared.model_hash,
        improvements=(*prepared.improvements, *outcomes),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Wishes about a model; see `prepare`."""

    mapping: QConfigMapping
    target: Target
    input_codes: Mapping[str, InputCodes | Pixels]
    output_codes: tuple[str, ...]
    costs: Costs | None
    feedback: Mapping[str, str]


def _decided(model: ir.Model, name: str, asked: _Request, notes: tuple[str, ...]) -> Prepared:
    """The Prepared of a canonical model of that hash; `notes` are on the model alone."""
    mapping, chosen, codes_out = asked.mapping, asked.target, asked.output_codes
    named = NamedForms(mapping)
    if mapping.choice is Choice.BEST:
        named = by_rules(model, mapping, chosen, codes_out)
    made = placed(model, named.mapping, chosen, codes_out)
    found, every, open_forms = with_reasons(made, named.reasons), made, mapping.without_forms()
    if open_forms != named.mapping:
        every = placed(model, open_forms, chosen, codes_out)
    groups = found.groups
    if open_forms != mapping:  # observed as if they were still to be chosen: the same numbers
        rules = by_rules(model, open_forms, chosen, codes_out).mapping
        ruled = placed(model, rules, chosen, codes_out)
        seen = {**observers_of(every.groups), **observers_of(ruled.groups)}
        groups = with_stand_ins(groups, seen, every.groups)
    absent = absent_op_types([node for node, _ in walk(model.graph)], mapping)
    return Prepared(
        model=model,
        model_hash=name,
        target=chosen,
        qconfig=mapping,
        chosen=named,
        decisions=found.decisions,
        groups=as_observed(groups, observers_of(every.groups)),
        clamps=found.clamps,
        channel_gains=found.channel_gains,
        in_integers=every.groups,
        feedback=asked.feedback,
        notes=(*notes, *found.notes, *absent),
        input_codes=asked.input_codes,
        output_codes=codes_out,
        costs=asked.costs,
        model_notes=len(notes),
    )


def _canonical(model: ModelSource | Canonical) -> Canonical:
    """The canonical model, whose graph may be changed."""
    if not isinstance(model, Canonical):
        return canonicalize(load(model), types_by_run)
    return model if model.trains else model.copy()


def named_again(prepared: Prepared, named: NamedForms) -> Prepared:
    """The Prepared with other forms; what is observed stays as it is.

    Args:
        prepared: of the same model and request.
        named: forms that the data have a say in.
    """
    made = placed(prepared.model, named.mapping, prepared.target, prepared.output_codes)
    found = with_reasons(made, named.reasons)
    return replace(
        prepared,
        chosen=named,
        decisions={**found.decisions, **prepared.left},
        groups=as_observed(found.groups, prepared.observed),
        clamps=found.clamps,
        channel_gains=found.channel_gains,
    )


def backend_of(target: str | Target | None) -> str:
    """PyTorch's name of the backend where the target is given by it, else the empty string."""
    return target if isinstance(target, str) and target in targets.BACKENDS else ""
