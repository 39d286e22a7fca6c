"""Quantized models that commands have written, and the words on them: nodes, sizes, verdict."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

from onnxq.cli.options import PATH, Bound
from onnxq.report.detail import is_quiet, is_whole
from onnxq.report.wrapping import say, say_aside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.checking.check import Check
    from onnxq.checking.runnable import Made
    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.graph.canonical import Canonical
    from onnxq.quantized.verdict import Verdict
    from onnxq.samples import Samples
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared
    from onnxq.weights.mixed_bits import Mixed
    from onnxq.weights.plan_weights import WeightPlan


@dataclass(frozen=True, slots=True)
class Written:
    """A quantized model that was written to a file.

    Attributes:
        made: the quantized model.
        source: file of the float model.
        file: of the quantized one.
    """

    made: Made[Plan] | Made[DynamicPlan] | Made[WeightPlan]
    source: Path
    file: Path

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the two files."""
        from onnxq.checking.bench import size_bytes

        return size_bytes(self.source), size_bytes(self.file)

    @property
    def verdict(self) -> Verdict | None:
        """The model's verdict, with the sizes of the files."""
        verdict = self.made.model.verdict
        if verdict is None:
            return None
        before, after = self.sizes
        return dataclasses.replace(verdict, float_bytes=before, quantized_bytes=after)


def report_quantization(prepared: Prepared, made: Plan, written: Written, as_json: bool) -> None:
    """Says what became of each operator, and what ONNX Runtime runs."""
    from onnxq.graph.checks import FORMAT_KEY
    from onnxq.qdq.qoperator import remains
    from onnxq.report import console, json_values, print_prediction, tables
    from onnxq.report.print_verdict import improvement_rows
    from onnxq.report.summary import summarize_choices

    summary = summarize_choices(prepared.model, made.decisions, made.choices, made.dtypes)
    model, runs = written.made.model, written.made.execution
    elsewhere = [] if runs is None else print_prediction.on_other_machines(made, runs)
    sizes = written.sizes
    remaining = remains(model)
    _warn_if_low(written)
    if as_json:
        value = {
            "output": str(written.file),
            "target": made.target,
            "format": model.metadata_props[FORMAT_KEY],
            "kept_qdq": dict(remaining.kept),
            "tables": list(remaining.tables),
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": [*made.notes, *elsewhere],
            "reduce_range": made.reduce_range.value,
            "reductions": {k: dataclasses.asdict(r) for k, r in made.reductions.items()},
            "improvements": [dataclasses.asdict(outcome) for outcome in made.improvements],
            **_tried(written),
        }
        click.echo(json_values.to_text(value | json_values.summary(summary)))
        return
    if is_quiet():
        return
    say(f"{written.file}: quantized for {made.target}")
    improvements = improvement_rows(made.improvements)
    if improvements:
        columns = ("improvement", "node", "kept", "dB before", "after", "why")
        title = "improvements of weights, judged on samples held back"
        tables.print_table(console.open_console(), title, columns, improvements, (3, 4))
    reduced = print_prediction.reduced_in_a_line(made)
    notes = [*reduced, *made.notes, *remaining.sentences(), *elsewhere]
    rows = print_prediction.reduced_rows(made) if is_whole() else []
    if rows:
        header = ("node", "channels", "largest scale", "mean")
        title = f"gave up range of weights, so that pairs of products fit ({made.reduce_range})"
        tables.print_table(console.open_console(), title, header, rows, numbers=(1, 2, 3))
    console.print_quantization(console.open_console(), summary, runs, sizes, notes)
    _say_verdict(written)


def _tried(written: Written) -> dict[str, object]:
    """Verdict and execution for --json; null where the model was not run."""
    from onnxq.report import json_values

    verdict, runs = written.verdict, written.made.execution
    return {
        "verdict": None if verdict is None else verdict.to_dict(),
        "execution": None if runs is None else json_values.execution(runs),
    }


def _say_verdict(written: Written) -> None:
    """Prints the verdict; says so where there is none."""
    from onnxq.report import console
    from onnxq.report.print_verdict import print_verdict

    verdict = written.verdict
    if verdict is None:
        say("no verdict: the file was not run")
        return
    print_verdict(console.open_console(), verdict, written.source, written.file)


def _warn_if_low(written: Written) -> None:
    verdict = written.verdict
    if verdict is not None and verdict.warning and not is_quiet():
        say_aside(f"warning: {verdict.warning}")


def report_dynamic(source: ir.Model, made: DynamicPlan, written: Written, as_json: bool) -> None:
    """Says which nodes were quantized and how, why others were not, and the sizes."""
    from onnxq.graph.checks import FORMAT_KEY
    from onnxq.report import console, json_values
    from onnxq.report.summary import summarize

    summary = summarize(source, made.decisions)
    model, runs, sizes = written.made.model, written.made.execution, written.sizes
    _warn_if_low(written)
    if as_json:
        value = {
            "output": str(written.file),
            "target": made.target,
            "objective": made.objective.value,
            "format": model.metadata_props.get(FORMAT_KEY, "float"),
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": list(made.notes),
            **_tried(written),
        }
        found = {name: decision.precision.value for name, decision in made.quantized.items()}
        click.echo(
            json_values.to_text(value | {"precisions": found} | json_values.summary(summary))
        )
        return
    if is_quiet():
        return
    done = "quantized dynamically" if made.quantized else "nothing is quantized"
    say(f"{written.file}: {done} for {made.target}, objective {made.objective.value}")
    console.print_quantization(console.open_console(), summary, runs, sizes, made.notes)
    _say_verdict(written)


def report_weights(
    source: Canonical, made: WeightPlan, mixed: Mixed | None, written: Written, as_json: bool
) -> None:
    """Says which weights are stored in groups and how, why others are not, and the sizes."""
    from onnxq.report import console, json_values, tables
    from onnxq.report.print_verdict import mixed_json, mixed_rows
    from onnxq.report.summary import summarize

    summary = summarize(source.model, made.dynamic_decisions)
    runs, sizes = written.made.execution, written.sizes
    notes = [*source.notes, *made.notes]
    _warn_if_low(written)
    if as_json:
        value = {
            "output": str(written.file),
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": notes,
            "mixed_bits": None if mixed is None else mixed_json(mixed),
            **_tried(written),
        }
        click.echo(json_values.to_text(value | json_values.summary(summary)))
        return
    if is_quiet():
        return
    say(f"{written.file}: {len(made.quantized)} weights in groups")
    if mixed is not None:
        title = "bits that cost least, by size; noise of rounding to nearest at the outputs"
        header, rows = mixed_rows(mixed)
        tables.print_table(console.open_console(), title, header, rows, range(1, len(header)))
    console.print_quantization(console.open_console(), summary, runs, sizes, notes)
    _say_verdict(written)


# --- Options on the verdict of a quantized model, which the commands that make one share


Command = TypeVar("Command", bound="Callable[..., object]")


def verdict_options(command: Command) -> Command:
    """Adds --check, --min-sqnr and --no-verdict to a command."""
    for option in (
        click.option(
            "--no-verdict",
            is_flag=True,
            help="Write the file without running it: for operators that are not registered here.",
        ),
        click.option(
            "--min-sqnr",
            type=Bound(),
            metavar="DB",
            help="Write nothing if a float output falls below this SQNR.",
        ),
        click.option(
            "--check",
            type=PATH,
            help="Samples to try the result on, other than those of the calibration.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Asked:
    """Values of the options.

    Attributes:
        check: samples to try the model on.
        min_sqnr: bound on every float output, in dB.
        no_verdict: the model is not run.

    Raises:
        click.UsageError: options that contradict each other.
    """

    check: Path | None
    min_sqnr: float | None
    no_verdict: bool

    def __post_init__(self) -> None:
        if self.no_verdict and (self.check is not None or self.min_sqnr is not None):
            raise click.UsageError("--no-verdict leaves nothing for --check and --min-sqnr.")

    def as_check(self, reading: Samples, hold_apart: int | None = None) -> Check:
        """The options as one value.

        Args:
            reading: how samples are read.
            hold_apart: one batch of the samples in so many; None: none.
        """
        from onnxq.checking.check import Check

        if self.no_verdict:
            return Check.NONE
        samples = self.check if self.check is None else replace(reading, source=self.check)
        return Check(samples, hold_apart, self.min_sqnr)
