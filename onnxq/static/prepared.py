"""A float model with a decision for every node, ready to be calibrated and planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnxq.core.brief import brief
from onnxq.errors import CalibrationError
from onnxq.graph.annotations import Annotations
from onnxq.graph.io import ExportedProgram, load
from onnxq.graph.saving import to_bytes
from onnxq.observers import ObserverSpec
from onnxq.operator import Float
from onnxq.page.card import card_of, counts
from onnxq.qconfig import QConfigMapping
from onnxq.qconfig.quantized_input import Pixels, QuantizedInput
from onnxq.quantized.outcome import Outcome
from onnxq.samples import InputSpec, input_specs, open_samples
from onnxq.samples.excerpt import Excerpt
from onnxq.static.calibration import Calibration
from onnxq.static.choosing.node_precisions import NodePrecisions, precision_counts, precisions_of
from onnxq.static.choosing.proposals import Decided
from onnxq.static.insertion.channel_scales import ChannelScale
from onnxq.static.insertion.context import Context, Rules
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.insertion.groups import TensorGroup, observers_of
from onnxq.static.noise.probed import probed
from onnxq.static.origin import Origin, read_again
from onnxq.static.planning.input_means import averaged
from onnxq.static.statistics import Statistics
from onnxq.targets import Target
from onnxq.times.time_model import TimeSource

ModelSource = str | Path | onnx.ModelProto | ir.Model | ExportedProgram


@dataclass(frozen=True, eq=False)
class Prepared:
    """A canonical float model, and what is to become of each node and tensor.

    Attributes:
        model: canonical float graph; treat it as read-only.
        model_hash: names graph and weights; Statistics and Plan carry it. It stays where
            constants are improved.
        target: the machine that the model is for.
        qconfig: what was asked for.
        rules: of the operators for each node.
        chosen: the same with the precisions that were chosen without data, and why.
        decisions: node name -> Quantize or Float(reason), in graph order, subgraphs included.
        groups: the quantized activation tensors.
        clamps: tensor -> real bounds of the Relu and Clip that were folded into its Q.
        channel_scales: the tensors that may carry a factor per channel.
        in_integers: groups of the tensors with every node in integers that can be: what the data
            may speak for. They are observed too.
        feedback: output name -> input name, for models whose state goes round.
        notes: what canonicalization did, and types and entries that a user should know of.
        quantized_input: inputs of the quantized model that are pixels or integers; pixels are uint8
            in `model` already.
        quantized_output: outputs of the quantized model that are integers.
        costs: times of nodes, which `plan` weighs; None: the target's table, where it has one.
        left: nodes that stay in float whatever is chosen, and why.
        source_hash: names the float model as it was given, which `verify` compares with; another
            than model_hash where a PTQ algorithm made an equal model of it. Empty: the same.
        outcomes: what became of the PTQ algorithms so far.
        model_notes: how many of the notes, the first ones, are on the model alone.
        origin: the file that the model was read from; None: it was given in memory.
        aim: the model as it was before its constants were improved, which computes what is aimed
            at; None: `model` does.
    """

    model: ir.Model = field(repr=False)  # pages of text
    model_hash: str
    target: Target
    qconfig: QConfigMapping
    rules: Rules = field(repr=False)
    chosen: Decided
    decisions: Mapping[str, Decision]
    groups: tuple[TensorGroup, ...]
    clamps: Mapping[str, tuple[float, float]]
    channel_scales: Mapping[str, ChannelScale]
    in_integers: tuple[TensorGroup, ...]
    feedback: Mapping[str, str]
    notes: tuple[str, ...]
    quantized_input: Mapping[str, QuantizedInput | Pixels] = field(default_factory=dict)
    quantized_output: tuple[str, ...] = ()
    costs: TimeSource | None = field(default=None, repr=False)
    left: Mapping[str, Float] = field(default_factory=dict)
    source_hash: str = ""
    outcomes: tuple[Outcome, ...] = ()
    model_notes: int = 0
    origin: Origin | None = field(default=None, repr=False)
    aim: ir.Model | None = field(default=None, repr=False)
    _calibration: list[Calibration] = field(default_factory=list, repr=False)  # begun by run()
    _excerpt: list[Excerpt] = field(default_factory=list, repr=False)  # likewise

    __repr__ = brief

    def _repr_html_(self) -> str:
        return card_of(self, counts("precision", precision_counts(self.precisions)))

    @property
    def context(self) -> Context:
        """The model, its rules and the wishes, for deciders."""
        return Context(
            self.model, self.rules, self.target, self.qconfig, self.quantized_output, self.feedback
        )

    @cached_property
    def observed(self) -> Mapping[str, ObserverSpec]:
        """Tensor name -> observer, for every tensor that calibration looks at."""
        return {**observers_of(self.in_integers), **observers_of(self.groups)}

    @property
    def precisions(self) -> NodePrecisions:
        """Node name -> its precision as far as it can be told without data, and why."""
        throughput = self.target.throughput
        return precisions_of(self.model, self.decisions, self.chosen.reasons, throughput)

    @property
    def probed(self) -> dict[str, ObserverSpec]:
        """Tensor name -> observer, for tensors that tell more than ranges.

        Errors grow behind some (see static/noise); by the means of others, weights are rounded.
        """
        means = averaged(self.model, self.decisions, self.target)
        return {**means, **probed(self.model)}

    def run(self, batch: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Observes one batch ({input name: array}), after those that came before it."""
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
        """The same with these nodes, and what is folded into them, left in float.

        The observed tensors stay as they are: nobody observed what a node gives to the one that is
        folded into it, so that the two stay together.
        """
        folded = {
            name: floats[decision.folded_into]
            for name, decision in self.decisions.items()
            if isinstance(decision, Quantize)
            and decision.folded_into is not None
            and decision.folded_into in floats
        }
        left = {**self.left, **folded, **floats}
        return replace(self, decisions={**self.decisions, **left}, left=left)

    def read_from(self, path: str | Path) -> Prepared:
        """Prepared that knows the file its model was read from, and so pickles as its path."""
        return replace(self, origin=Origin.of(path, self.model))

    def __reduce__(self) -> tuple[Callable[..., Prepared], tuple[object, ...]]:
        """Pickles as the path of its model's file, read again where it is unpickled.

        With the bytes of the model where it was given in memory, or edited since it was read.
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
        """Statistics of what `run` has observed so far."""
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
    """Prepared of a model in a file."""
    op_types = others["qconfig"].op_types
    model = read_again(path, others["model_hash"], others["quantized_input"], op_types)
    return _with_begun(Prepared(model, origin=Origin.of(path, model), **others), begun)


def _with_begun(prepared: Prepared, begun: list[Statistics]) -> Prepared:
    prepared._calibration.extend(Calibration(prepared, seen) for seen in begun)  # noqa: SLF001  # of this module
    return prepared
