"""The command that searches: tune."""

from __future__ import annotations

import os
import shlex
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.end_options import Ends, ends_options
from onnxq.cli.options import (
    PATH,
    Bound,
    annotations_option,
    choice_option,
    json_option,
    names,
    output_option,
    qconfig_option,
    reduce_range_option,
    set_option,
    target_option,
)
from onnxq.cli.reporting import report_option, write_report
from onnxq.cli.samples_options import image_words, samples_options
from onnxq.cli.steps import (
    asked_mapping,
    asked_target,
    claim_beside,
    claim_folder,
    given,
    load_model,
)
from onnxq.cli.worker_options import Workers, workers_options
from onnxq.report.detail import is_quiet
from onnxq.report.wrapping import say
from onnxq.shown import shown
from onnxq.tuning.defaults import IMPROVE, MOST_RUNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from onnxq.samples import Samples
    from onnxq.tuning.tuned import Tuned


@click.command()
@click.argument("model", type=PATH)
@click.argument("samples", type=PATH)
@output_option
@click.option(
    "--min-sqnr", type=Bound(), metavar="DB", help="Least SQNR of every float output beside float."
)
@click.option(
    "--metric",
    metavar="sqnr|top1|kl|bits|FILE.py:function",
    help="function(run, samples) -> number, higher is better; run takes {input: array} and gives "
    "{output: array}, samples have labels. Default: sqnr.",
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
@ends_options
@samples_options
@workers_options
@annotations_option
@json_option
def tune(
    model: Path,
    samples: Path,
    output: Path,
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
    ends: Ends,
    reading: Samples,
    workers: Workers,
    annotations: str,
    as_json: bool,
) -> None:
    """Search for a quantized MODEL that reaches an accuracy, a speed or a size, by measuring it.

    It begins with what `quantize` would make, or with --qconfig, and changes the precisions of
    layers. Where the goal is not reached, nothing is written to the output: the report shows the
    best there is, --front and --save-qconfig keep it, and the exit code is 8.
    """
    if check is not None and hold_apart is not None:
        raise click.UsageError("--hold-apart checks on some of SAMPLES: without --check.")
    kept = SearchFiles(output, front, save_qconfig, report)
    kept.claim(model, given(journal), [samples, *given(qconfig, check, costs)])
    source = load_model(model, [output])
    from onnxq.checking.check import Check
    from onnxq.dynamic.dynamic_decision import Objective
    from onnxq.report.progress import progress_bar
    from onnxq.samples.excerpt import EVERY
    from onnxq.times import Costs
    from onnxq.tuning.scoring.goal import Goal
    from onnxq.tuning.tune import tune as search
    from onnxq.tuning.tuned import MissedGoalWarning

    goal = Goal(
        min_sqnr,
        max_drop,
        max_time,
        Objective(objective),
        max_runs,
        max_seconds,
        metric,
        improve,
    )
    mapping = asked_mapping(qconfig, overrides, target, choice)
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
            target=asked_target(target, reduce_range),
            check=Check(hold_apart=hold_apart or EVERY) if check is None else check,
            quantized_input=ends.quantized_input,
            quantized_output=ends.outputs,
            costs=None if costs is None else Costs.load(costs),
            journal=journal,
            executor=executor,
            progress=progress,
        )
    options = {
        "--target": target,
        "--reduce-range": reduce_range,
        "--costs": costs,
        "--batch-size": reading.batch_size,
        "--annotations": None if annotations == "dropped" else annotations,
        "--hold-apart": None if check is not None else hold_apart or EVERY,
    }
    reading = replace(reading, ignore=(*reading.ignore, *tuned.labels))
    more = [*_reading_words(reading), *image_words(samples), *ends.words]
    found = kept.write(tuned, annotations)
    _measure_files(tuned, model, None if tuned.missed else output)
    command = ["onnxq", "quantize", str(model), os.fspath(samples), "-o", str(output)]
    _report(tuned, None if found is None else _again(command, found, options, more), as_json)
    if report is not None:
        _write_page(tuned, kept, model, replace(reading, source=check or samples))
    _check_reached(tuned, output)


@dataclass(frozen=True, slots=True)
class SearchFiles:
    """Paths of what a search leaves.

    Attributes:
        output: of the model, where the goal was reached.
        front: folder of the points; None: they are not wanted.
        qconfig: of the best model; None: it is not wanted.
        report: page; None: it is not wanted.
    """

    output: Path
    front: Path | None
    qconfig: Path | None
    report: Path | None

    def claim(self, model: Path, beside: Sequence[Path], read: Sequence[Path]) -> None:
        """Refuses paths that cannot be written, or that the search reads.

        Args:
            model: that is searched for.
            beside: further files that are written.
            read: files that are read.
        """
        claim_beside(model, [self.output, *given(self.qconfig, self.report), *beside], read)
        for folder in given(self.front):
            claim_folder(folder)

    def write(self, tuned: Tuned, annotations: str) -> Path | None:
        """Writes front, qconfig and model; the file that has the best one's qconfig, if any."""
        from onnxq.core.atomic import write_atomically
        from onnxq.graph.annotations import Annotations
        from onnxq.graph.saving import save

        points = [] if self.front is None else tuned.save_front(self.front)
        if self.qconfig is not None:
            text = tuned.qconfig.to_yaml().encode()
            write_atomically(self.qconfig, lambda file: file.write(text))
        if not tuned.missed:
            save(tuned.model, self.output, Annotations(annotations))
        return self.qconfig or _chosen(tuned, points)


def _write_page(tuned: Tuned, kept: SearchFiles, model: Path, samples: Samples) -> None:
    """Writes the HTML report on the best model, whether or not it was written itself.

    Args:
        tuned: what was found.
        kept: with a report.
        model: in float.
        samples: that both are run on.
    """
    from onnxq.survey.survey import BesideFiles

    assert kept.report is not None
    beside = BesideFiles(tuned.plan, tuned=tuned, notes=tuned.missed)
    best = tuned.model if tuned.missed else kept.output
    write_report((model, best, samples), kept.report, beside)


def _check_reached(tuned: Tuned, output: Path) -> None:
    """Raises VerificationError where the goal was missed."""
    from onnxq.errors import VerificationError

    if tuned.missed:
        raise VerificationError(
            f"the goal was not reached ({'; '.join(tuned.missed)}), and '{output}' is not written. "
            f"{_advice(tuned)}"
        )


def _advice(tuned: Tuned) -> str:
    """Advice where the goal was not reached."""
    from onnxq.tuning.tuned import option_to_go_on

    if not tuned.goal.missed(tuned.score, tuned.float_metric):
        return (
            "The samples of the search keep it, those held apart do not: give more samples, or ask "
            "for more than you need."
        )
    more = option_to_go_on(tuned)
    allow = f"allow {more}, " if more else ""
    return f"Set a wider bound, {allow}name more of --improve, or take a point of --front."


def _measure_files(tuned: Tuned, model: Path, output: Path | None) -> None:
    """Gives the verdict the sizes of the files, as `quantize` says them; None: none was written."""
    from onnxq.checking.bench import size_bytes

    verdict = tuned.model.verdict
    if verdict is None:
        return
    after = verdict.quantized_bytes if output is None else size_bytes(output)
    sized = replace(verdict, float_bytes=size_bytes(model), quantized_bytes=after)
    tuned.model.attach(sized)


def _chosen(tuned: Tuned, points: list[Path]) -> Path | None:
    """The file of the front that has the best point; None: there is none."""
    files = zip(points, tuned.front, strict=bool(points))
    return next((file for file, point in files if point.qconfig == tuned.qconfig), None)


def _again(
    command: Sequence[str], qconfig: Path, options: Mapping[str, object], more: Sequence[str]
) -> str:
    """The command that makes the same file of the best point's qconfig; None is no option."""
    named = {"--qconfig": qconfig, **options}
    words = [str(x) for key, value in named.items() if value is not None for x in (key, value)]
    return shlex.join([*command, *words, *more])


def _reading_words(reading: Samples) -> list[str]:
    """Options that say which arrays of the samples are no inputs, and which go round."""
    return [
        *(f"--ignore={name}" for name in reading.ignore),
        *(f"--feedback={key}={value}" for key, value in reading.feedback.items()),
    ]


def _report(tuned: Tuned, again: str | None, as_json: bool) -> None:
    """Prints the report, or JSON.

    Args:
        tuned: what was found.
        again: the command that makes the file anew; None: its qconfig was not kept.
        as_json: whether machines read it.
    """
    from onnxq.report import json_values
    from onnxq.report.console import open_console
    from onnxq.tuning.tuned import print_tuned

    if as_json:
        click.echo(json_values.to_text({**tuned.to_dict(), "again": again}))
        return
    if is_quiet():
        return
    print_tuned(open_console(), tuned)
    if again:
        click.echo(shown(f"again: {again}"))  # to be copied
        return
    say("again: the same search; --save-qconfig FILE keeps what it found")
