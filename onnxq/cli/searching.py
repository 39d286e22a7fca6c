"""The command that searches: tune."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from onnxq.cli import steps
from onnxq.cli.io_options import InputsOutputs, io_options
from onnxq.cli.option_groups import GroupedCommand
from onnxq.cli.options import (
    PATH,
    Bound,
    annotations_option,
    choice_option,
    json_option,
    made_output_option,
    names,
    qconfig_option,
    reduce_range_option,
    set_option,
    target_option,
)
from onnxq.cli.reporting import report_option, write_report
from onnxq.cli.samples_options import samples_arguments, samples_options
from onnxq.cli.worker_options import Workers, workers_options
from onnxq.report.detail import is_quiet, is_whole
from onnxq.report.wrapping import say
from onnxq.tuning.defaults import IMPROVE, MOST_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from onnxq.report.print_verdict import Line
    from onnxq.samples import Samples
    from onnxq.tuning.tuned import Tuned


@click.command(cls=GroupedCommand)
@click.argument("model", type=PATH)
@click.argument("samples", type=PATH)
@made_output_option
@click.option(
    "--min-sqnr", type=Bound(), metavar="DB", help="Least SQNR of every float output beside float."
)
@click.option(
    "--metric",
    metavar="sqnr|top1|kl|bits|boxes|map|masks|words|frames|FILE.py:function",
    help="Number that is best when highest; options behind a colon, as boxes:format=xyxy. Of a "
    "FILE.py, function(run, samples): run takes {input: array} and gives {output: array}, samples "
    "have labels. Default: sqnr.",
)
@click.option(
    "--max-drop", type=Bound(min=0), metavar="X", help="Most that the metric may lose of float's."
)
@click.option(
    "--max-time",
    type=Bound(min=0, min_open=True),
    metavar="RATIO",
    help="Most time, as a share of the float model's: 1 is not slower.",
)
@click.option(
    "--objective",
    type=click.Choice(["speed", "size", "accuracy"]),
    default="speed",
    show_default=True,
    help="What to make best within the bounds.",
)
@click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    default=MOST_RUNS,
    show_default=True,
    help="Models to quantize and run on the samples.",
)
@click.option(
    "--max-seconds", type=Bound(min=0), metavar="S", help="Try no change after so many seconds."
)
@click.option("--check", type=PATH, help="Samples that the goal is checked on.")
@click.option(
    "--hold-apart",
    type=click.IntRange(min=2),
    metavar="N",
    help="Without --check, the goal is checked on every N-th batch of SAMPLES, which chooses "
    "nothing; default: 4.",
)
@click.option(
    "--improve",
    default=",".join(IMPROVE),
    show_default=True,
    metavar="NAME,...",
    callback=names,
    help="Improvements of weights that may be used: bias, smooth, round ...",
)
@click.option(
    "--journal", type=PATH, help="Keep what is measured; the same command goes on from there."
)
@click.option(
    "--costs",
    type=PATH,
    help="Times of nodes from `onnxq costs`; default: measured on this model, here and now.",
)
@click.option(
    "--front",
    type=PATH,
    metavar="DIR",
    help="Write the points of the Pareto front, each a qconfig.",
)
@click.option("--save-qconfig", type=PATH, help="Write the qconfig of the best model.")
@report_option
@qconfig_option
@set_option
@choice_option
@target_option
@reduce_range_option
@io_options
@samples_options
@workers_options
@annotations_option
@json_option
def tune(
    model: Path,
    samples: Path,
    output: Path | None,
    min_sqnr: float | None,
    metric: str | None,
    max_drop: float | None,
    max_time: float | None,
    objective: str,
    max_runs: int,
    max_seconds: float | None,
    check: Path | None,
    hold_apart: int | None,
    improve: tuple[str, ...],
    journal: Path | None,
    costs: Path | None,
    front: Path | None,
    save_qconfig: Path | None,
    report: Path | None,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    choice: str | None,
    target: str | None,
    reduce_range: str | None,
    io: InputsOutputs,
    reading: Samples,
    workers: Workers,
    annotations: str,
    as_json: bool,
) -> None:
    """Search for a quantized MODEL that reaches an accuracy, a speed or a size, by measuring it.

    It begins with what `quantize` would make, or with --qconfig, and changes the precisions of
    layers. Where the goal is not reached, nothing is written to the output: the report shows the
    best there is, --front and --save-qconfig keep it; exit code 8, or 13 where that is float.
    """
    if check is not None and hold_apart is not None:
        raise click.UsageError("--hold-apart checks on some of SAMPLES: without --check.")
    output = steps.made_output(output, model, "tuned")
    kept = SearchFiles(output, front, save_qconfig, report)
    kept.claim(model, steps.given(journal), [samples, *steps.given(qconfig, check, costs)])
    source = steps.load_model(model, [output])
    from onnxq.checking.check import Check
    from onnxq.dynamic.dynamic_decision import Objective
    from onnxq.report.progress import progress_bar
    from onnxq.samples.excerpt import EVERY
    from onnxq.times import Costs
    from onnxq.tuning.scoring.goal import Goal
    from onnxq.tuning.tune import tune as search
    from onnxq.tuning.tuned import MissedGoalWarning

    goal = Goal(
        min_sqnr, max_drop, max_time, Objective(objective), max_runs, max_seconds, metric, improve
    )
    mapping = steps.asked_mapping(qconfig, overrides, target, choice)
    with (
        workers.executor() as executor,
        progress_bar("tune") as progress,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", MissedGoalWarning)  # the error below says it
        tuned = search(
            source,
            replace(reading, source=samples),
            goal=goal,
            qconfig=mapping,
            target=steps.asked_target(target, reduce_range),
            check=Check(hold_apart=hold_apart or EVERY) if check is None else check,
            quantized_input=io.quantized_input,
            quantized_output=io.outputs,
            costs=None if costs is None else Costs.load(costs),
            journal=journal,
            executor=executor,
            progress=progress,
        )
    options = {
        "--target": target,
        "--reduce-range": reduce_range,
        "--costs": costs,
        "--annotations": None if annotations == "dropped" else annotations,
        "--hold-apart": None if check is not None else hold_apart or EVERY,
    }
    reading = replace(reading, ignore=(*reading.ignore, *tuned.labels), source=samples)
    found = kept.write(tuned, annotations)
    _measure_files(tuned, model, None if tuned.missed or tuned.is_float else output)
    command = ["onnxq", "quantize", str(model), *samples_arguments(reading), "-o", str(output)]
    again = None if found is None else _again(command, found, options, io.words)
    compared = replace(reading, source=check or samples)
    _report(tuned, FilesOfSearch(model, output, compared, again), as_json)
    if report is not None:
        _write_page(tuned, kept, model, compared)
    _check_reached(tuned, output)


@dataclass(frozen=True, slots=True)
class SearchFiles:
    """Paths of what a search leaves."""

    output: Path
    front: Path | None
    qconfig: Path | None
    report: Path | None

    def claim(self, model: Path, beside: Sequence[Path], read: Sequence[Path]) -> None:
        """Refuses paths that cannot be written, or that the search reads."""
        steps.claim_outputs(
            model, [self.output, *steps.given(self.qconfig, self.report), *beside], read
        )
        for folder in steps.given(self.front):
            steps.claim_folder(folder)

    def write(self, tuned: Tuned, annotations: str) -> Path | None:
        """Writes front, qconfig and model; the file that has the best one's qconfig, if any."""
        from onnxq.core.atomic import write_atomically
        from onnxq.graph.annotations import Annotations
        from onnxq.graph.saving import save

        points = [] if self.front is None else tuned.save_front(self.front)
        if self.qconfig is not None:
            text = tuned.qconfig.to_yaml().encode()
            write_atomically(self.qconfig, lambda file: file.write(text))
        if not (tuned.missed or tuned.is_float):
            save(tuned.model, self.output, Annotations(annotations))
        files = zip(points, tuned.front, strict=bool(points))
        best = next((file for file, point in files if point.qconfig == tuned.qconfig), None)
        return self.qconfig or best


def _write_page(tuned: Tuned, kept: SearchFiles, model: Path, samples: Samples) -> None:
    """Writes the HTML report on the best model, whether or not it was written itself."""
    from onnxq.survey.survey import BesideFiles

    assert kept.report is not None
    beside = BesideFiles(tuned.plan, tuned=tuned, notes=tuned.missed)
    best = tuned.model if tuned.missed or tuned.is_float else kept.output
    write_report((model, best, samples), kept.report, beside)


def _check_reached(tuned: Tuned, output: Path) -> None:
    """Raises VerificationError where the goal was missed, and where only float reaches it."""
    from onnxq.errors import NothingQuantizedError, VerificationError

    if tuned.missed:
        raise VerificationError(
            f"the goal was not reached ({'; '.join(tuned.missed)}), and '{output}' is not written. "
            f"{_advice(tuned)}"
        )
    if tuned.is_float:
        raise NothingQuantizedError(
            f"only the float model reaches the goal, and '{output}' is not written. {_wider(tuned)}"
        )


def _advice(tuned: Tuned) -> str:
    """Advice where the goal was not reached."""
    if not tuned.goal.missed(tuned.score, tuned.float_metric):
        bound_db, more = tuned.goal.min_sqnr_db, ""
        if bound_db is not None:
            short_db = tuned.score.worst_db - tuned.held_apart.score.worst_db
            more = f": --min-sqnr {bound_db + short_db + 0.1:.1f}"
        return (
            "The samples of the search keep it, those held apart do not: give more samples, or ask "
            f"for more than you need{more}."
        )
    return _wider(tuned)


def _wider(tuned: Tuned) -> str:
    from onnxq.tuning.tuned import option_to_go_on

    more = option_to_go_on(tuned)
    allow = f"allow {more}, " if more else ""
    return f"Set a wider bound, {allow}name more of --improve, or take a point of --front."


def _measure_files(tuned: Tuned, model: Path, output: Path | None) -> None:
    """Gives the verdict the sizes of the files, as `quantize` says them; None: none was written."""
    from onnxq.graph.io import size_bytes

    verdict = tuned.model.verdict
    if verdict is None:
        return
    after = verdict.quantized_bytes if output is None else size_bytes(output)
    sized = replace(verdict, float_bytes=size_bytes(model), quantized_bytes=after)
    tuned.model.attach(sized)


def _again(
    command: Sequence[str], qconfig: Path, options: Mapping[str, object], more: Sequence[str]
) -> str:
    """The command that makes the same file of the best point's qconfig; None is no option."""
    named = {"--qconfig": qconfig, **options}
    words = [str(x) for key, value in named.items() if value is not None for x in (key, value)]
    return shlex.join([*command, *words, *more])


def _report(tuned: Tuned, files: FilesOfSearch, as_json: bool) -> None:
    """Prints the answer, with -v the stages too; or JSON."""
    from onnxq.report import json_values
    from onnxq.report.console import open_console
    from onnxq.report.print_verdict import print_answer
    from onnxq.tuning.tuned import print_tuned

    if as_json:
        click.echo(json_values.to_text({**tuned.to_dict(), "again": files.again}))
        return
    if is_quiet():
        return
    on = open_console()
    print_answer(on, _answer(tuned, files))
    if is_whole():
        say("")
        print_tuned(on, tuned)


@dataclass(frozen=True, slots=True)
class FilesOfSearch:
    """Files that the answer names."""

    model: Path
    output: Path
    samples: Samples
    again: str | None

    @property
    def report(self) -> str:
        """The command that writes a report on it."""
        page = str(self.output.with_suffix(".html"))
        words = [str(self.model), str(self.output), *samples_arguments(self.samples), "-o", page]
        return f"{shlex.join(['onnxq', 'report', *words])}   # what costs accuracy, what costs time"


def _answer(tuned: Tuned, files: FilesOfSearch) -> Iterator[Line]:
    """Says what was found, what it reaches on samples that chose nothing, and what to do next."""
    from onnxq.errors import counted
    from onnxq.report.print_verdict import Line, next_lines, verdict_lines
    from onnxq.tuning.search.local_search import SearchEnd
    from onnxq.tuning.tables import score_words
    from onnxq.tuning.tuned import chosen_changes, notes_on_choice

    verdict, apart = tuned.model.verdict, tuned.held_apart
    is_written = not (tuned.missed or tuned.is_float)
    written = f"{files.output}: " if is_written else "not written: "
    late = f"; {tuned.why.value}" if tuned.why is SearchEnd.LATE else ""
    head = "nothing is quantized" if tuned.is_float else f"tuned for {tuned.goal}{late}"
    yield Line(f"{written}{head}")
    if verdict is not None:
        yield from verdict_lines(verdict)
    words = score_words(apart.score, apart.float_metric, tuned.metric_digits)
    yield Line(f"on {apart.where}: {words}")
    yield Line(f"chosen: {counted(chosen_changes(tuned), MOST_CHANGES)}", 2)
    yield from (Line(note, 1) for note in notes_on_choice(tuned))
    commands = [files.report] if is_written else []
    yield from next_lines(commands)
    if files.again:
        yield Line(f"again: {files.again}", is_command=True)
    if not is_whole():
        yield Line(f"-v shows the rest: {len(tuned.steps)} models, and what each layer costs")


MOST_CHANGES = 3
"""Changes that are named without -v."""
