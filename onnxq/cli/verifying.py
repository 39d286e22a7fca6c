"""The command that compares a quantized model with float: verify."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.options import PATH, Bound, json_option
from onnxq.cli.samples_options import samples_options
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command()
@click.argument("model", metavar="FLOAT", type=PATH)
@click.argument("quantized", type=PATH)
@click.argument("samples", type=PATH)
@samples_options
@click.option(
    "--min-sqnr",
    type=Bound(),
    metavar="DB",
    help="Fail (exit code 8) where a tensor or float output has a lower SQNR; see --only.",
)
@click.option(
    "--max-lsb",
    type=Bound(min=0),
    metavar="N",
    help="Fail where an error is larger, in LSB.",
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Compare these tensors and outputs only."
)
@workers_options
@json_option
def verify(
    model: Path,
    quantized: Path,
    samples: Path,
    min_sqnr: float | None,
    max_lsb: float | None,
    only: tuple[str, ...],
    as_json: bool,
    reading: Samples,
    workers: Workers,
) -> None:
    """Run both models on SAMPLES side by side: what did quantization change?

    The bounds hold for every tensor and output that is compared; --only narrows that down. No
    SQNR is asked of outputs of integers, such as indices.

    `onnxq cross-check` compares the integers with exact ones, `onnxq predict` other machines.
    """
    from onnxq.checking.sides import EVERYTHING
    from onnxq.report.console import open_console
    from onnxq.report.print_findings import print_findings
    from onnxq.report.progress import progress_bar
    from onnxq.survey.verified import verify as run

    with workers.executor() as executor, progress_bar("verify") as progress:
        findings = run(
            model,
            quantized,
            replace(reading, source=samples),
            executor=executor,
            only=only or EVERYTHING,
            progress=progress,
        )
    if as_json:
        click.echo(findings.to_json())
    else:
        print_findings(open_console(), findings, min_sqnr, max_lsb)
    findings.check(min_sqnr, max_lsb)
