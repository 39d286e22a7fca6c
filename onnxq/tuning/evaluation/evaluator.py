"""Evaluator: quantizes with a mapping as `onnxq.quantize` does, runs the model, gives its Score.

What candidates share is done once: the canonical model, the calibration, the float outputs. A run
is one quantized model on all of its samples, on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from onnxq.checking.check import Check
from onnxq.checking.runnable import Made
from onnxq.checking.static_job import StaticJob, carry_out
from onnxq.core.arrays import Array
from onnxq.core.memory import bytes_to_keep
from onnxq.errors import CalibrationError, LimitError, ModelError
from onnxq.graph.quantized import INPUTS_KEY, OUTPUTS_KEY, read_quantized_io
from onnxq.graph.saving import saved_bytes
from onnxq.observers import Observer, ObserverSpec
from onnxq.operator import Precision
from onnxq.ort.runtime import Session, open_session
from onnxq.qconfig import QConfigMapping
from onnxq.samples import Batches, Samples, as_taken, input_specs
from onnxq.samples.excerpt import Excerpt
from onnxq.samples.inputs import Batch
from onnxq.static.calibrate import calibrate
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.static.statistics import Statistics
from onnxq.times.time_model import Precisions
from onnxq.times.timed_runs import one_row
from onnxq.tuning.scoring.metric import Kind, Metric
from onnxq.tuning.scoring.model_run import ModelRun
from onnxq.tuning.scoring.paired_outputs import PairedOutputs
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.scoring.subject import Subject
from onnxq.tuning.scoring.tuning_samples import TuningSamples

T = TypeVar("T")
Ratio = Callable[[Precisions], float | None]
"""Predicted time over the float model's (see TimeModel.ratio); None: not known."""


class Evaluator:
    """Scores of mappings of one model: `score = evaluator(mapping)`.

    Args:
        subject: the float model and its wishes.
        samples: to calibrate on.
        baseline: the float model on the samples to score on: these, or others.
        metric: to score by.
        ratio: predicts the time of a candidate (see TimeModel); None: its score has none.
        statistics: of an earlier calibration on the samples; None: it is done when first needed.
        cover: mapping whose calibration serves all that observe no more (see Observations); for
            estimates. None: each has its own, as in `quantize`.
    """

    def __init__(
        self,
        subject: Subject,
        samples: TuningSamples,
        baseline: Baseline,
        metric: Metric,
        ratio: Ratio | None = None,
        statistics: Statistics | None = None,
        cover: QConfigMapping | None = None,
    ) -> None:
        self.subject = subject
        self.baseline = baseline
        self.metric = metric
        self.ratio = ratio
        self.samples = samples
        self._calibration = samples.taken_by(subject.calibrated_inputs())
        self.observations = Observations(self._calibration, statistics)
        self.cover = cover
        if cover is not None:
            self.observations = self.observations.covering(subject.prepared(cover))
        self._prepared: Prepared | None = None
        self._last: tuple[QConfigMapping, Made[Plan]] | None = None

    def __reduce__(self) -> tuple[type[Evaluator], tuple[object, ...]]:
        """Pickles for other processes; calibrates first, so that no other process repeats it."""
        first = self.statistics
        return Evaluator, (
            *(self.subject, self.samples, self.baseline, self.metric, self.ratio),
            *(first, self.cover),
        )

    def on(self, baseline: Baseline) -> Evaluator:
        """The evaluator that scores on other samples; it calibrates on the same ones, once."""
        made = Evaluator(self.subject, self.samples, baseline, self.metric, self.ratio)
        made.observations, made.cover = self.observations, self.cover
        return made

    def covering(self, cover: QConfigMapping) -> Evaluator:
        """The evaluator for estimates, in which what observes no more shares a calibration.

        Raises:
            QConfigError, UnsupportedError: there is no model of that mapping.
        """
        made = self.on(self.baseline)
        made.observations = self.observations.covering(self.subject.prepared(cover))
        made.cover = cover
        return made

    def __call__(self, mapping: QConfigMapping) -> Score:
        """Score of the model that `quantize` makes with that mapping."""
        made = self.quantized(mapping)
        try:
            return self._score(made)
        except (
            ModelError,
            LimitError,
        ):  # as `quantize` does: nodes with which it does not run go to float
            return self._score(self._made(mapping, Check(self._first_batch())))

    @property
    def statistics(self) -> Statistics:
        """Statistics of the calibration with the observers of the default, or of the cover.

        Raises:
            CalibrationError: unusable samples.
        """
        mapping = self.subject.default if self.cover is None else self.cover
        return self.observations.of(self.subject.prepared(mapping))

    def prepared(self, mapping: QConfigMapping) -> Prepared:
        """The subject prepared with that mapping.

        Raises:
            QConfigError, UnsupportedError: as of `prepare`.
        """
        if self._prepared is None or self._prepared.qconfig != mapping:
            self._prepared = self.subject.prepared(mapping)
        return self._prepared

    def quantized(self, mapping: QConfigMapping) -> Made[Plan]:
        """Plan and model, as `quantize` makes them of the samples; byte for byte the same.

        Raises:
            QConfigError, UnsupportedError, CalibrationError: as of `quantize`.
        """
        if self._last is None or self._last[0] != mapping:
            self._last = mapping, self._made(mapping, Check.NONE)
        return self._last[1]

    def running(self, mapping: QConfigMapping) -> Made[Plan]:
        """The model whose score a mapping has: nodes with which it does not run are in float.

        Raises:
            QConfigError, UnsupportedError, CalibrationError, ModelError: there is none.
        """
        made = self.quantized(mapping)
        try:
            open_session(made.model, threads=1).close()
        except (ModelError, LimitError):
            return self._made(mapping, Check(self._first_batch()))
        return made

    def finished(self, mapping: QConfigMapping, apart: TuningSamples) -> Made[Plan]:
        """Plan and model that `quantize` makes with the mapping, tried on samples held apart.

        Raises:
            QConfigError, UnsupportedError, CalibrationError, ModelError: as of `quantize`.
        """
        return self._made(mapping, Check(apart.taken_by(self.subject.calibrated_inputs())))

    def _made(self, mapping: QConfigMapping, check: Check) -> Made[Plan]:
        wishes = self.subject.wishes
        prepared = self.prepared(mapping)
        samples = Samples(self._calibration)
        job = StaticJob(prepared, wishes.file_format, check, samples, wishes.objective)
        made, _ = carry_out(job, self.observations.beside)
        return made

    def one_row(self) -> Batch:
        """One sample of the first batch, on which models are timed."""
        batch = self.samples.fed(self.samples.batches[0])
        return one_row(self.subject.canonical.model, self.subject.inputs, batch)

    def _first_batch(self) -> Batches:
        samples = self.baseline.samples
        taken = as_taken(samples.fed(samples.batches[0]), self.subject.calibrated_inputs())
        return Batches(samples.where, 1, lambda: iter([taken]))

    def _score(self, made: Made[Plan]) -> Score:
        """Runs a model."""
        model, samples = made.model, self.baseline.samples
        beside = None if self.metric.made is None else self.metric.made()
        outputs = PairedOutputs(read_quantized_io(model, OUTPUTS_KEY), beside)
        with open_session(model, threads=1) as session:
            run = self._run(made, session)
            for batch, x in zip(samples.batches, self.baseline.beside(), strict=True):
                try:
                    y = run(batch)
                except CalibrationError as error:
                    raise ModelError(str(error)) from error  # the float model runs on it
                outputs.update(x, y)
                if self.metric.kind is Kind.OWN:
                    run.keep(batch, y)
            run.restart()
            value = self.metric.value(outputs, run, samples)
        ratio = None if self.ratio is None else self.ratio(precisions_of(made.plan))
        return Score(value, outputs.sqnr_db, saved_bytes(model), ratio)

    def _run(self, made: Made[Plan], session: Session) -> ModelRun:
        subject = self.subject
        quantized = read_quantized_io(made.model, INPUTS_KEY)
        inputs = input_specs(
            subject.canonical.model, tuple(subject.wishes.feedback.values()), quantized
        )
        return ModelRun(
            session, input_specs(made.model), inputs, subject.outputs, subject.wishes.feedback
        )


def precisions_of(plan: Plan) -> dict[str, Precision | None]:
    """The precisions of a plan's nodes; None: another node carries it out."""
    inside = {
        name
        for name, decision in plan.decisions.items()
        if isinstance(decision, Quantize) and decision.folded_into
    }
    return {n: None if n in inside else chosen.precision for n, chosen in plan.precisions.items()}


# --- Statistics for every candidate of a tune: observed once, and once more where one needs
#     others


class Observations:
    """Statistics of the samples, as `calibrate` gives them to each candidate.

    Candidates that observe the same tensors with the same observers share a calibration, as those
    do that name precisions alone: a node in FLOAT is observed all the same, one whose entry is None
    is not. ONNX Runtime fuses other nodes where other tensors are outputs, and numbers differ in
    their last bit: hence these have a calibration of their own.

    Where numbers are estimates, that last bit is worth no calibration: `covering` shares one.
    """

    def __init__(self, samples: Batches, statistics: Statistics | None = None) -> None:
        self._samples = samples
        self._seen = [] if statistics is None else [statistics]
        self._cover: Prepared | None = None
        self.calibrations = 0

    def covering(self, prepared: Prepared) -> Observations:
        """Observations in which what observes parts of this Prepared has its calibration."""
        made = Observations(self._samples)
        made._seen, made._cover = self._seen, prepared
        return made

    def of(self, prepared: Prepared) -> Statistics:
        """Statistics of the observers that the Prepared asks for; as `calibrate` finds them."""
        cover = self._cover
        is_covered = (
            cover is not None
            and cover.model_hash == prepared.model_hash
            and prepared.probed.items() <= cover.probed.items()
            and prepared.observed.items() <= cover.observed.items()
        )
        found = self._calibrated(cover if cover is not None and is_covered else prepared)
        return replace(
            found,
            observers=_parts(found.observers, prepared.observed),
            counts=_parts(found.counts, prepared.observed),
            not_finite=_parts(found.not_finite, prepared.observed),
            probed=_parts(found.probed, prepared.probed),
        )

    def beside(self, prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        """The statistics, as a StaticJob asks for them; nothing is added to the excerpt."""
        return self.of(prepared), excerpt

    def _calibrated(self, prepared: Prepared) -> Statistics:
        """Statistics in which just these tensors are seen, by these observers; found once."""
        tensors = {*prepared.observed, *prepared.probed}
        for seen in self._seen:
            is_alike = {*seen.observers, *seen.probed} == tensors
            if is_alike and seen.model_hash == prepared.model_hash and _has(seen, prepared):
                return seen
        self.calibrations += 1
        self._seen.append(calibrate(prepared, self._samples))
        return self._seen[-1]


def _has(seen: Statistics, prepared: Prepared) -> bool:
    """Whether its observers are among those that were calibrated with."""
    return (
        prepared.observed.items() <= _specs(seen.observers).items()
        and prepared.probed.items() <= _specs(seen.probed).items()
    )


def _specs(observers: Mapping[str, Observer]) -> dict[str, ObserverSpec]:
    return {tensor: observer.spec for tensor, observer in observers.items()}


def _parts(found: Mapping[str, T], tensors: Mapping[str, object]) -> Mapping[str, T]:
    """The entries of these tensors."""
    return MappingProxyType({tensor: found[tensor] for tensor in tensors if tensor in found})


# --- The float model on the samples of a tune: its outputs and its metric, found once


@dataclass(frozen=True, eq=False)
class Baseline:
    """The float model on one set of samples."""

    subject: Subject
    samples: TuningSamples
    metric: float
    outputs: tuple[dict[str, Array], ...] | None

    def beside(self) -> Iterator[dict[str, Array]]:
        """Outputs of the float model, batch by batch."""
        if self.outputs is not None:
            yield from self.outputs
            return
        with self.subject.open_float() as session:
            run = self.subject.float_run(session)
            for batch in self.samples.batches:
                yield run(batch)


def baseline_of(subject: Subject, samples: TuningSamples, metric: Metric) -> Baseline:
    """The Baseline of a model on samples."""
    most = bytes_to_keep()
    kept: list[dict[str, Array]] | None = []
    taken = 0
    with subject.open_float() as session:
        run = subject.float_run(session)
        for batch in samples.batches:
            found = run(batch)
            taken += sum(x.nbytes for x in found.values() if isinstance(x, np.ndarray))
            if taken > most:
                kept = None
            if kept is not None:
                kept.append(found)
        if kept is not None:
            for batch, found in zip(samples.batches, kept, strict=True):
                run.keep(batch, found)
        run.restart()
        value = metric.value(None, run, samples)
    return Baseline(subject, samples, value, None if kept is None else tuple(kept))
