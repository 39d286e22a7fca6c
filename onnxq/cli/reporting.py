"""The command that writes an HTML report, and the option of others that does: report, --report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.commands import typed_command
from onnxq.cli.common_options import say_written
from onnxq.cli.options import PATH, Bound, output_option
from onnxq.cli.samples_options import samples_options
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from onnxq.samples import Samples
    from onnxq.static.prepared import ModelSource
    from onnxq.survey.survey import BesideFiles

report_option = click.option(
    "--report", type=PATH, help="Write an HTML report on the result, which opens offline."
)


def check_report(report: Path | None, samples: Path | None) -> None:
    """Refuses a report without samples."""
    if report is not None and samples is None:
        command = click.get_current_context().command
        takes = any(param.name == "samples" for param in command.params)
        raise click.UsageError(
            f"--report runs both models: give {'SAMPLES or ' if takes else ''}--check."
        )


@click.command()
@click.argument("model", metavar="FLOAT", type=PATH)
@click.argument("quantized", metavar="QUANTIZED", type=PATH)
@click.argument("samples", type=PATH)
@output_option
@samples_options
@click.option(
    "--plan", type=PATH, help="The plan of quantize --save-plan: reasons of every decision."
)
@click.option(
    "--min-sqnr",
    type=Bound(),
    metavar="DB",
    help="Fail (exit code 8) where a tensor or output has a lower SQNR.",
)
@click.option(
    "--max-lsb", type=Bound(min=0), metavar="N", help="Fail where an error is larger, in LSB."
)
@workers_options
def report(
    model: Path,
    quantized: Path,
    samples: Path,
    output: Path,
    reading: Samples,
    plan: Path | None,
    min_sqnr: float | None,
    max_lsb: float | None,
    workers: Workers,
) -> None:
    """Write an HTML report: what costs accuracy, what costs time, every decision, the graph.

    One file that opens offline, in any browser, and asks nobody for anything. The bounds are those
    of `verify`: the report shows them, is written all the same, and the command fails by them.
    """
    from onnxq.cli.steps import claim_outputs, given
    from onnxq.samples.ignored import check_ignored
    from onnxq.static.plan import Plan
    from onnxq.survey.heading import Bounds
    from onnxq.survey.survey import BesideFiles

    claim_outputs(model, [output], [quantized, samples, *given(plan)])
    compared = replace(reading, source=samples)
    check_ignored(compared)
    bounds = Bounds(min_sqnr, max_lsb)
    beside = BesideFiles(None if plan is None else Plan.load(plan), bounds=bounds)
    with workers.executor() as executor:
        write_report((model, quantized, compared), output, beside, executor)


def write_report(
    compared_ones: tuple[ModelSource, ModelSource, Samples],
    path: Path,
    beside: BesideFiles,
    executor: Executor | None = None,
) -> None:
    """Runs both models, writes their report, and fails by the bounds."""
    from onnxq.checking.sides import sides_of
    from onnxq.checking.verify import open_for
    from onnxq.page.costly import costly
    from onnxq.report.progress import progress_bar
    from onnxq.survey.verified import compared

    model, quantized, samples = compared_ones
    sides = sides_of(model, quantized)
    batches = open_for(sides, samples)
    with progress_bar("report") as progress:
        found = compared(sides, batches, samples.feedback, progress, executor)
    page = found.write(path, beside, typed_command())
    say_written("\n".join([f"{path}: the report; open it in a browser", *costly(page)]))
    found.findings.check(beside.bounds.min_sqnr_db, beside.bounds.max_lsb)
