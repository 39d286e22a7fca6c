"""Findings with the models at hand: verify as users call it, and the report that findings write."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from onnxq.checking.answers import RecognizedAnswers
from onnxq.checking.findings import Findings
from onnxq.checking.side_by_side import SideBySide
from onnxq.checking.sides import EVERYTHING, Sides, sides_of
from onnxq.checking.validation import refusal
from onnxq.checking.verify import findings_of, open_for
from onnxq.graph.given_file import given_size
from onnxq.graph.io import load
from onnxq.ort.runtime import CPU, check_provider
from onnxq.page.content import Page
from onnxq.page.render import write_page
from onnxq.quantized.output_verdict import Answers
from onnxq.report.inspection import TARGET_KEY
from onnxq.samples import Batches, Samples, input_specs
from onnxq.samples.excerpt import Excerpt
from onnxq.samples.ignored import check_ignored
from onnxq.samples.inputs import Batch
from onnxq.static.arguments import check_progress
from onnxq.static.calibrate import Progress
from onnxq.static.prepared import ModelSource
from onnxq.survey.heading import ReportSubject
from onnxq.survey.survey import NOTHING_BESIDE, BesideFiles, survey


@dataclass(frozen=True)
class Compared:
    """Two models that were run side by side, and what of it a report needs.

    Attributes:
        excerpt: a few of the batches that were run.
        feedback: output name -> input name, of state.
    """

    findings: Findings
    sides: Sides
    excerpt: Excerpt
    feedback: Mapping[str, str]

    def write(self, path: Path, beside: BesideFiles = NOTHING_BESIDE, command: str = "") -> Page:
        """Writes the report; what it shows."""
        sides = self.sides
        subject = ReportSubject(
            _label(sides.model, "the float model"),
            _label(sides.quantized, "the quantized model"),
            (given_size(sides.source), given_size(load(sides.quantized))),
            command,
            sides.target.metadata_props.get(TARGET_KEY, ""),
            self.excerpt.samples,
        )
        page = survey(subject, sides, self.findings, self.batches(), self.feedback, beside)
        write_page(page, path)
        return page

    def batches(self) -> list[Batch]:
        """A few batches that both models take."""
        batches, whole = self.excerpt.chosen(), self.excerpt.whole()
        is_fixed = whole and refusal(self.sides.source, batches[0])  # its batch, by a constant
        return whole if is_fixed else batches

    def answers(self, provider: str) -> tuple[Answers, ...]:
        """Figures of what the outputs say in these batches."""
        recognized, sides = RecognizedAnswers(), self.sides
        both = sides.source, sides.target
        with SideBySide(*both, (), sides.outputs, self.feedback, provider=provider) as run:
            compare = run.open(recognized.update)
            for batch in self.batches():
                compare(batch)
        return recognized.found


def compared(
    sides: Sides,
    batches: Batches,
    feedback: Mapping[str, str],
    progress: Progress | None = None,
    executor: Executor | None = None,
    provider: str = CPU,
) -> Compared:
    """Both models, run on opened samples."""
    excerpt = Excerpt(input_specs(sides.source, feedback.values()), feedback.values())
    found = findings_of(sides, excerpt.watching(batches), feedback, progress, executor, provider)
    return Compared(found, sides, excerpt, feedback)


def verify(
    model: ModelSource,
    quantized: ModelSource,
    samples: object,
    *,
    only: Sequence[str] = EVERYTHING,
    progress: Progress | None = None,
    executor: Executor | None = None,
    provider: str = CPU,
) -> Findings:
    """Findings of a quantized model beside its float model; they are checked, saved, and reported.

        findings = onnxq.verify("model.onnx", "model.int8.onnx", samples)
        findings.check(min_sqnr_db=20)
        findings.report("report.html")

    Inputs that are pixels or integers in the quantized model may come as such, or as the numbers
    that the float model takes; outputs that are integers are compared as the numbers they stand
    for.

    Args:
        model: the float model; path, ModelProto or onnx_ir.Model.
        quantized: what `rewrite` made of it, or another tool's file, QDQ or operators on integers,
            that kept the float model's names of tensors.
        samples: as `calibrate` takes them; with feedback, each model gets its own state.
        only: globs; tensors and outputs to compare.
        progress: called after each batch.
        executor: whose workers run the models, one thread each; None: this process. The findings
            are the same. Batches with state run here, one after the other.
        provider: execution provider of ONNX Runtime that both run on. Of another than the CPU's,
            outputs alone are compared.
    Raises:
        ModelError: a model cannot be read, or the two do not belong together.
        CalibrationError: unusable samples.
        QConfigError: a glob of `only` that matches nothing, a provider that is not there.
        WorkerError: workers died, more often than it was tried.
    Warns:
        UserWarning: an executor is given, and feedback.
    """
    check_progress(progress)
    check_provider(provider)
    sides, given = sides_of(model, quantized, only), Samples.of(samples)
    batches = open_for(sides, given)
    check_ignored(given)
    found = compared(sides, batches, given.feedback, progress, executor, provider)
    findings = replace(found.findings, answers=found.answers(provider))
    return findings.reported_by(found)


def _label(given: ModelSource, otherwise: str) -> str:
    return Path(given).name if isinstance(given, str | Path) else otherwise
