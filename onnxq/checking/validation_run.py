"""Validation run: a quantized model beside its float model, and the Verdict on it.

Both sessions have one thread, so that the CPU time of the runs that are compared gives the speed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxq.checking.answers import RecognizedAnswers
from onnxq.checking.collapse import find_collapse
from onnxq.checking.execution import execution_in
from onnxq.checking.findings import Execution
from onnxq.checking.side_by_side import Pair
from onnxq.checking.validation import REFUSALS, Batch, RefusalError, Validation
from onnxq.core.arrays import Array
from onnxq.core.brief import size_text
from onnxq.core.memory import available_bytes
from onnxq.errors import OnnxqError
from onnxq.graph.annotations import as_written
from onnxq.graph.folded import saved_by_writing_as_given
from onnxq.graph.given_file import given_size
from onnxq.graph.quantized import INPUTS_KEY, OUTPUTS_KEY, read_quantized_io
from onnxq.graph.saving import saved_bytes, weight_bytes
from onnxq.language.decoder import LOGITS
from onnxq.ort import runtime
from onnxq.ort.target_here import target_here
from onnxq.ort.turns import Schedule, taken, taking_turns
from onnxq.qdq.narrow import packed_bytes
from onnxq.quantized.output_verdict import OutputVerdict
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import GIVEN_FILE, InputSource, Verdict
from onnxq.samples import as_taken, input_specs
from onnxq.samples.excerpt import rows_of
from onnxq.samples.inputs import has_dynamic_batch
from onnxq.samples.state import State
from onnxq.targets import all_targets
from onnxq.targets.accumulation import SaturationMode
from onnxq.times.timed_runs import runs_on

SESSION_SIZES = 2.0
"""Memory of a session, in sizes of its weights: the copy that ONNX Runtime makes, and as much again
for packing them and for activations."""
TIME_SHARE = 0.05
"""Share of the CPU time of the work so far that may go into pairs of runs for their time alone."""
LEAST_TIME_S = 0.5
"""CPU time that the least pairs may take however short the work was."""
KEPT_BYTES = 1 << 26
"""Size of weights that stay in memory from the run on, in place of being rounded for each use."""
RUN_SHARE, LEAST_RUN_S = 0.25, 1.0
"""Share of the CPU time of the work so far that the runs of calibration samples may take, and what
they may take however short the work was."""
LEAST_PAIRS = 2
MOST_PAIRS = 11


def try_out(model: QuantizedModel, validation: Validation) -> tuple[Verdict, Execution, Batch]:
    """The Verdict on a model that ONNX Runtime runs, which of its nodes run in integers, and when.

    Returns:
        last the sample that both models were timed on; empty: they were not.
    """
    session, runs = _opened(model)
    run = _Run(validation, model)
    with session:
        notes = run.over(session)
    outputs, collapse = run.outputs(), None
    if any(output.is_low for output in outputs):
        try:
            collapse = find_collapse(
                validation.source, model, validation.batches, validation.feedback
            )
        except OnnxqError as error:  # of a look at the inside of a model that itself runs
            notes.append(f"where it leaves the float model was not found: {error}")
    verdict = Verdict(
        input_source=validation.input_source,
        samples=run.samples,
        samples_in_all=run.samples
        if validation.samples_in_all is None
        else validation.samples_in_all,
        outputs=outputs,
        collapse=collapse,
        speedup=run.speedup,
        float_bytes=given_size(validation.source),
        size_of=GIVEN_FILE if saved_by_writing_as_given(validation.source) else None,
        quantized_bytes=saved_bytes(model),
        integer_nodes=sum(runs.integer_nodes.values()),
        float_nodes=sum(runs.float_nodes.values()),
        notes=(*notes, *run.notes(), *_note_on_sums(model, outputs), *_note_on_packed(model)),
        answers=run.answers.found,
    )
    return verdict, runs, run.timed_on


def _note_on_sums(model: QuantizedModel, outputs: Sequence[OutputVerdict]) -> list[str]:
    """One note where sums saturate on this machine and not on the model's target; else none."""
    name = model.metadata_props.get("onnxq.target")
    meant = next((target for target in all_targets() if target.name == name), None)
    if not outputs or meant is None or meant.saturation_mode is not SaturationMode.EXACT:
        return []
    here = target_here()
    if here.saturation_mode is not SaturationMode.SATURATES:
        return []
    return [
        f"this machine is {here.name}, where sums of two products can saturate; on {meant.name} "
        "they do not, and outputs may be nearer to float there. For this machine: --target portable"
    ]


def _note_on_packed(model: QuantizedModel) -> list[str]:
    """One note on weights that are larger in a session than in the file; none where none is."""
    stored, in_session = packed_bytes(model)
    if not stored:
        return []
    return [
        f"{size_text(stored)} of weights are packed in the file; a session unpacks them when it is "
        f"opened, and holds {size_text(in_session)}"
    ]


def try_alone(model: QuantizedModel, batch: Batch) -> Verdict:
    """The Verdict on a model without a float model beside it: it runs on its example inputs."""
    session, runs = _opened(model)
    try:
        with session:
            session.run(batch)
    except REFUSALS as error:
        raise RefusalError(error, batch) from error
    return Verdict(
        input_source=InputSource.EXAMPLES,
        samples=rows_of(batch),
        samples_in_all=rows_of(batch),
        outputs=(),
        collapse=None,
        speedup=None,
        float_bytes=None,
        quantized_bytes=saved_bytes(model),
        integer_nodes=sum(runs.integer_nodes.values()),
        float_nodes=sum(runs.float_nodes.values()),
    )


def _opened(model: QuantizedModel) -> tuple[runtime.Session, Execution]:
    _keep_integers(model)
    try:
        session, optimized = runtime.open_with_graph(as_written(model))
    except REFUSALS as error:
        raise RefusalError(error, None) from error
    return session, execution_in(model, optimized)


def _keep_integers(model: QuantizedModel) -> None:
    """Rounds weights once, for the run and for the file: of a model with few bytes of them."""
    if weight_bytes(model) > KEPT_BYTES:
        return
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.LazyTensor):
                value.const_value.cache = True


@dataclass(slots=True)
class ComparedOutput:
    """An output under comparison, and why a batch of it could not be compared."""

    pair: Pair
    problem: str = ""

    def update(self, x: object, y: object) -> None:
        """Adds a batch: x of the one model, y of the other."""
        name = self.pair.name
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or x.dtype.kind in "OSUT":
            self.problem = f"output '{name}' holds no numbers, and was not compared"
            return
        if x.shape != y.shape:
            self.problem = f"output '{name}' changes its shape: {x.shape} became {y.shape}"
        self.pair.sums.add(self.pair.compared(x, y))

    def verdict(self) -> OutputVerdict | None:
        """Verdict on it; None: nothing could be compared."""
        name, sums = self.pair.name, self.pair.sums
        if sums.agreement is not None:  # of indices: no bound in dB is on them
            return OutputVerdict(name, agreement=sums.agreement)
        if sums.differing:
            return OutputVerdict(name, float("nan"))
        if not sums.compared.elements:
            return None
        kl, of = sums.divergence, "token" if name == LOGITS else "row"
        whole, part, share = sums.compared.sqnr_db, sums.worst_part, sums.top1.share
        return OutputVerdict(name, whole, None, share, part, kl.bits, kl.error, of)


class _Run:
    """Both models on the batches of a Validation."""

    def __init__(self, validation: Validation, model: QuantizedModel) -> None:
        self.samples = 0
        self.ratios: list[float] = []
        self.timed_on: Batch = {}
        self._begun_s = validation.work.spent_s
        self._last_s = [0.0, 0.0]  # of the last batch: quantized, float
        self.answers = RecognizedAnswers()
        self._validation = validation
        self._model = model
        self._names = [str(v.name) for v in validation.source.graph.outputs]
        quantized = read_quantized_io(model, OUTPUTS_KEY)
        self._outputs = [
            ComparedOutput(Pair(name, name, name, None, quantized=quantized.get(name)))
            for name in self._names
        ]

    def over(self, quantized: runtime.Session) -> list[str]:
        """Runs; notes on what was left out."""
        validation = self._validation
        theirs = input_specs(self._model)
        specs = input_specs(
            validation.source,
            validation.feedback.values(),
            read_quantized_io(self._model, INPUTS_KEY),
        )
        beside = _float_session(validation) if validation.is_beside_float else None
        states = [State(specs, validation.feedback) for _ in range(2)]
        feeds: Batch = {}
        for batch in validation.batches:
            if self._is_enough():
                break
            feeds = states[0].feeds(batch)
            y, quantized_s = self._timed(quantized, as_taken(feeds, theirs), feeds)
            states[0].keep(y)
            self.samples += rows_of(batch)
            if isinstance(beside, runtime.Session):
                given = states[1].feeds(batch)
                try:
                    x, float_s = self._timed(beside, given, given)
                except RefusalError:
                    if validation.has_samples:
                        raise
                    beside.close()  # of made-up inputs the times alone are wanted
                    beside = None
                    continue
                states[1].keep(x)
                self.ratios.append(float_s / quantized_s)
                self._last_s = [quantized_s, float_s]
                if validation.has_samples:
                    self._compare(x, y)
        if isinstance(beside, str):
            return [beside]
        if beside is None:
            return []
        with beside:
            return self._more_pairs(quantized, beside, feeds)

    def _compare(self, x: Mapping[str, Array], y: Mapping[str, Array]) -> None:
        """Adds outputs of one batch: x of float, y of the quantized model."""
        numbers = {}
        for output in self._outputs:
            name = output.pair.name
            output.update(x[name], y[name])
            numbers[name] = output.pair.decoded(y[name])
        self.answers.update(x, numbers)

    def _is_enough(self) -> bool:
        """Whether a sample was run, and there is no time for another.

        Samples that were named for the purpose are run, all of them.
        """
        by_itself = (InputSource.CALIBRATION, InputSource.NOT_FITTED)
        is_chosen = self._validation.input_source in by_itself
        spent_s = self._validation.work.spent_s
        allowed = max(RUN_SHARE * self._begun_s, LEAST_RUN_S)
        return is_chosen and self.samples > 0 and spent_s - self._begun_s > allowed

    def _timed(
        self, session: runtime.Session, feeds: Batch, batch: Batch
    ) -> tuple[dict[str, Array], float]:
        """Outputs and CPU seconds of a run; RefusalError of the float model's batch."""
        try:
            session.prove(feeds, self._names)  # ahead of the clock
            start = time.process_time()
            results = session.run(feeds, self._names)
        except REFUSALS as error:
            raise RefusalError(error, batch) from error
        spent = time.process_time() - start
        return dict(zip(self._names, results, strict=True)), max(spent, 1e-9)

    def _more_pairs(
        self, quantized: runtime.Session, beside: runtime.Session, feeds: Batch
    ) -> list[str]:
        """Times further runs of the last batch, within TIME_SHARE of the work so far.

        Of its first sample, where the batch is open: that is how a model runs where it is used.
        """
        allowed = max(TIME_SHARE * self._validation.work.spent_s, LEAST_TIME_S)
        one = self._one_sample(beside, feeds)
        given = as_taken(one, input_specs(self._model))
        runs = [partial(quantized.run, given, self._names), partial(beside.run, one, self._names)]
        if one is not feeds:
            _, self._last_s = ([taken(run) for run in runs] for _ in range(2))
            self.ratios = []
        schedule = Schedule.within(allowed, self._last_s, 0, MOST_PAIRS)
        # the first run of a session gets its memory; short ones found the other's data in the cache
        self.ratios = self.ratios[1:] if max(schedule.repeats) == 1 else []
        more = min(schedule.rounds, MOST_PAIRS - len(self.ratios))
        if len(self.ratios) + more < LEAST_PAIRS:
            return ["the speed was not measured, which would have taken long; onnxq bench does it"]
        self.timed_on = one
        ours, theirs = taking_turns(runs, replace(schedule, rounds=max(more, 0)))
        self.ratios += [y / x for x, y in zip(ours, theirs, strict=True)]
        return []

    def _one_sample(self, beside: runtime.Session, feeds: Batch) -> Batch:
        """The first row of a batch, where it can be cut and the float model runs on that."""
        specs = input_specs(self._validation.source)
        if rows_of(feeds) == 1 or self._validation.feedback or not has_dynamic_batch(specs):
            return feeds
        one = {name: x[:1] for name, x in feeds.items()}
        return one if runs_on(beside, one) else feeds

    @property
    def speedup(self) -> float | None:
        """Median of float time over quantized time; None for too few pairs."""
        return float(np.median(self.ratios)) if len(self.ratios) >= LEAST_PAIRS else None

    def outputs(self) -> tuple[OutputVerdict, ...]:
        """Verdicts on the outputs that could be compared."""
        found = [output.verdict() for output in self._outputs]
        return tuple(verdict for verdict in found if verdict is not None)

    def notes(self) -> list[str]:
        """Why an output, or some of it, could not be compared."""
        problems = [output.problem for output in self._outputs if output.problem]
        alike = "numbers are NaN or Inf in both models"
        sums = {output.pair.name: output.pair.sums.compared for output in self._outputs}
        return problems + [
            f"output '{name}': {of.nonfinite_pairs} of {of.elements} {alike}"
            for name, of in sums.items()
            if of.nonfinite_pairs
        ]


def _float_session(validation: Validation) -> runtime.Session | str | None:
    """A session of the float model, or why there is none; None: only its times would be wanted."""
    needed = int(SESSION_SIZES * weight_bytes(validation.source))
    available = available_bytes()
    if available is not None and needed > available:
        return (
            f"not compared with float: that needs about {needed / 1e9:.1f} GB of memory beside "
            f"the quantized model, and {available / 1e9:.1f} GB are free"
        )
    try:
        return runtime.open_session(validation.source, threads=1)
    except REFUSALS:
        if validation.has_samples:
            raise
        return None
