"""Quantized models that commands have written, and the words on them: nodes, sizes, verdict."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click

from onnxq.cli.options import PATH, Bound
from onnxq.cli.samples_options import samples_arguments
from onnxq.errors import NothingQuantizedError
from onnxq.report.detail import is_quiet, is_whole
from onnxq.report.wrapping import say, say_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from onnxq.checking.check import Check
    from onnxq.checking.runnable import Made
    from onnxq.checking.summary import Summary
    from onnxq.dynamic.dynamic_decision import DynamicPlan
    from onnxq.graph.canonical import Canonical
    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.quantized.verdict import Verdict
    from onnxq.report.print_verdict import Line
    from onnxq.samples import Samples
    from onnxq.static.plan import Plan
    from onnxq.weights.mixed_bits import Mixed
    from onnxq.weights.weight_plan import WeightPlan


@dataclass(frozen=True)  # without slots: its sizes are kept
class Written:
    """A quantized model that was written to a file."""

    made: Made[Plan] | Made[DynamicPlan] | Made[WeightPlan]
    source: Path
    file: Path
    samples: Samples | None = None
    calibrated_on: Samples | None = None

    @functools.cached_property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the two files."""
        from onnxq.graph.io import size_bytes

        return size_bytes(self.source), size_bytes(self.file)

    @property
    def verdict(self) -> Verdict | None:
        """The model's verdict, with the sizes of the files."""
        verdict = self.made.model.verdict
        if verdict is None:
            return None
        before, after = self.sizes
        return dataclasses.replace(verdict, float_bytes=before, quantized_bytes=after)


class PrintedTable(NamedTuple):
    """A table that is printed ahead of what all commands print; see `print_table`."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int]


@dataclass(frozen=True)
class Account:
    """Account of a quantized model: what becomes of its nodes, and what one command adds.

    Attributes:
        head: what was done, in a few words.
        notes: for people and programs, the most important first.
        tables: of the command, for people who ask for all; those without rows are left out.
        more: commands to go on with, beside those of every model.
        improved: what PTQ algorithms did, the first of which people see.
    """

    head: str
    summary: Summary
    notes: Sequence[str]
    values: Mapping[str, object]
    tables: Sequence[PrintedTable] = ()
    more: Sequence[str] = ()
    improved: Sequence[str] = ()


def tell(written: Written, account: Account, as_json: bool) -> None:
    """Says what was written, its verdict, and what to do next; with -v all that is known of it."""
    from onnxq.core.saved import plain
    from onnxq.report import console, json_values, tables
    from onnxq.report.print_verdict import print_answer

    verdict, runs, sizes = written.verdict, written.made.execution, written.sizes
    if verdict is not None and verdict.warning and not is_quiet():
        say_aside(f"warning: {verdict.warning}")
    on = console.open_console()
    if as_json:
        value = {
            "output": str(written.file),
            "float_bytes": sizes[0],
            "quantized_bytes": sizes[1],
            "notes": list(account.notes),
            "verdict": None if verdict is None else verdict.to_dict(),
            "execution": plain(runs),
        }
        every = value | dict(account.values) | json_values.summary(account.summary)
        click.echo(json_values.to_text(every))
    elif not is_quiet():
        print_answer(on, _answer(written, account))
    if is_whole() and not as_json:
        say("")
        for table in account.tables:
            if table.rows:
                tables.print_table(on, *table)
        console.print_details(on, account.summary, runs, account.notes)


def check_quantized(verdict: Verdict | None, summary: Summary, objective: str) -> None:
    """Raises NothingQuantizedError where the result is the float model, and says why."""
    counts = summary.node_counts(None)
    if counts.integers or counts.stored:
        return
    worst = summary.worst_float
    why = "no node has an integer form" if worst is None else f"{worst.ops}: {worst.words}"
    if verdict is not None and verdict.float_because:
        why = f"{verdict.float_because}. --repair off keeps integers that gain nothing"
    smaller = "" if objective == "size" else "; or --objective size for a smaller file"
    raise NothingQuantizedError(
        f"nothing is quantized, and nothing was written: {why}. Use the given model{smaller}."
    )


def _answer(written: Written, account: Account) -> Iterator[Line]:
    """The lines that say it; see onnxq.report.print_verdict."""
    from onnxq.core.brief import size_text
    from onnxq.report.print_verdict import Line, float_lines, next_lines, verdict_lines

    verdict = written.verdict
    before, after = map(size_text, written.sizes)
    yield Line(f"{written.file}: {account.head}, {before} -> {after}")
    if verdict is None:
        yield Line("no verdict: the file was not run")
    else:
        yield from verdict_lines(verdict)
    yield from float_lines(account.summary)
    yield from (Line(said, 4) for said in account.improved[:1])
    if not is_whole():
        yield from (Line(f"note: {note}", 3) for note in account.notes[:1])
    yield from next_lines([*_look_closer(written), *account.more])
    if not is_whole():
        notes = f", {len(account.notes)} notes" if len(account.notes) > 1 else ""
        yield Line(f"-v shows the rest: why each node is as it is{notes}")


def _look_closer(written: Written) -> list[str]:
    """The command that says more of a model, with the files that are known."""
    verdict, samples = written.verdict, written.samples
    if verdict is None:
        return []
    files = [str(written.source), str(written.file)]
    if samples is None or samples.source is None:
        words = ["onnxq", "bench", *files, *_shapes(written.made.model)]
        return [f"{shlex.join(words)}   # speed, in pairs of runs"]
    page = str(written.file.with_suffix(".html"))
    words = [*files, *samples_arguments(samples), "-o", page]
    return [f"{shlex.join(['onnxq', 'report', *words])}   # what costs accuracy, what costs time"]


def _shapes(model: QuantizedModel) -> Iterator[str]:
    """Arguments that say usual sizes of inputs which leave more than the batch open."""
    from onnxq.dynamic.expected_sizes import expected_sizes
    from onnxq.samples import input_specs

    sizes = expected_sizes(model, {}, {})
    for spec in input_specs(model):
        if spec.shape is not None and not all(isinstance(size, int) for size in spec.shape[1:]):
            yield from ("--shape", f"{spec.name}={','.join(map(str, sizes[spec.name]))}")


def report_quantization(summary: Summary, made: Plan, written: Written, as_json: bool) -> None:
    """Says what static quantization made of a model."""
    from onnxq.graph.checks import FORMAT_KEY
    from onnxq.qdq.qoperator import remains
    from onnxq.quantized.outcome import summaries
    from onnxq.report import print_prediction
    from onnxq.report.print_verdict import algorithm_rows

    model, runs = written.made.model, written.made.execution
    elsewhere = [] if runs is None else print_prediction.on_other_machines(made, runs)
    remaining = remains(model)
    values = {
        "target": made.target,
        "format": model.metadata_props[FORMAT_KEY],
        "kept_qdq": dict(remaining.kept),
        "tables": list(remaining.tables),
        "reduce_range": made.reduce_range.value,
        "reductions": {k: dataclasses.asdict(r) for k, r in made.reductions.items()},
        "algorithms": [dataclasses.asdict(outcome) for outcome in made.outcomes],
    }
    tables = (
        PrintedTable(
            "PTQ algorithms, judged on samples held back",
            ("algorithm", "node", "kept", "dB before", "after", "why"),
            algorithm_rows(made.outcomes),
            (3, 4),
        ),
        PrintedTable(
            f"reduced range of weights, so that pairs of products fit int16 ({made.reduce_range})",
            ("node", "channels", "largest scale", "mean"),
            print_prediction.reduced_rows(made),
            (1, 2, 3),
        ),
    )
    account = Account(
        f"quantized for {made.target}",
        summary,
        [*made.notes, *remaining.sentences(), *elsewhere],
        values,
        tables,
        _tuned_further(written, made.target),
        summaries(made.outcomes),
    )
    tell(written, account, as_json)


def _tuned_further(written: Written, target: str) -> list[str]:
    """The command that searches for a model nearer to float; none where none is known to be."""
    from onnxq.report.print_verdict import next_goal

    verdict, samples = written.verdict, written.calibrated_on
    goal = [] if verdict is None else next_goal(verdict)
    if not goal or samples is None or samples.source is None:
        return []
    output = str(written.file.with_name(f"{written.source.stem}.tuned.onnx"))
    words = [str(written.source), *samples_arguments(samples)]
    if written.samples is not None and written.samples.source != samples.source:
        words += ["--check", str(written.samples.source)]
    command = ["onnxq", "tune", *words, "--target", target, *goal, "-o", output]
    return [f"{shlex.join(command)}   # nearer to float"]


def report_dynamic(summary: Summary, made: DynamicPlan, written: Written, as_json: bool) -> None:
    """Says which nodes were quantized dynamically and how, and why others were not."""
    from onnxq.graph.checks import FORMAT_KEY

    values = {
        "target": made.target,
        "objective": made.objective.value,
        "format": written.made.model.metadata_props.get(FORMAT_KEY, "float"),
        "precisions": {name: each.precision.value for name, each in made.quantized.items()},
    }
    head = f"quantized dynamically for {made.target}, objective {made.objective.value}"
    tell(written, Account(head, summary, made.notes, values), as_json)


def report_weights(
    source: Canonical, made: WeightPlan, mixed: Mixed | None, written: Written, as_json: bool
) -> None:
    """Says which weights are stored in groups and how, and why others are not."""
    from onnxq.checking.summary import summarize
    from onnxq.report.print_verdict import mixed_json, mixed_rows

    header, rows = ((), []) if mixed is None else mixed_rows(mixed)
    title = "bits that cost least, by size; noise of rounding to nearest at the outputs"
    account = Account(
        f"weights of {len(made.nodes)} node{'s' * (len(made.nodes) != 1)} in groups",
        summarize(source.model, made.dynamic_decisions),
        [*source.notes, *made.notes],
        {"mixed_bits": None if mixed is None else mixed_json(mixed)},
        (PrintedTable(title, header, rows, range(1, len(header))),),
    )
    tell(written, account, as_json)


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
    """Values of the options."""

    check: Path | None
    min_sqnr: float | None
    no_verdict: bool

    def __post_init__(self) -> None:
        if self.no_verdict and (self.check is not None or self.min_sqnr is not None):
            raise click.UsageError("--no-verdict leaves nothing for --check and --min-sqnr.")

    def as_check(self, reading: Samples, hold_apart: int | None = None) -> Check:
        """The options as one value."""
        from onnxq.checking.check import Check

        if self.no_verdict:
            return Check.NONE
        samples = self.check if self.check is None else replace(reading, source=self.check)
        return Check(samples, hold_apart, self.min_sqnr)
