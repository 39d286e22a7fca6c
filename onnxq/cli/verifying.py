"""Commands that compare a quantized model with float: verify, predict, cross-check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli import options
from onnxq.cli.common_options import say_note
from onnxq.cli.samples_options import samples_options
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command()
@click.argument("model", metavar="FLOAT", type=options.PATH)
@click.argument("quantized", type=options.PATH)
@click.argument("samples", type=options.PATH)
@samples_options
@click.option(
    "--min-sqnr",
    type=options.Bound(),
    metavar="DB",
    help="Fail (exit code 8) where a tensor or float output has a lower SQNR; see --only.",
)
@click.option(
    "--max-lsb",
    type=options.Bound(min=0),
    metavar="N",
    help="Fail where an error is larger, in LSB.",
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Compare these tensors and outputs only."
)
@options.provider_option
@workers_options
@options.json_option
def verify(
    model: Path,
    quantized: Path,
    samples: Path,
    min_sqnr: float | None,
    max_lsb: float | None,
    only: tuple[str, ...],
    provider: str,
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
            provider=provider,
        )
    if as_json:
        click.echo(findings.to_json())
    else:
        print_findings(open_console(), findings, min_sqnr, max_lsb)
    findings.check(min_sqnr, max_lsb)


# --- The command that says on which machines integers differ: predict


@click.command()
@click.argument("quantized", type=options.PATH)
@click.argument("samples", type=options.PATH, required=False)
@click.option(
    "--machines",
    default="all",
    show_default=True,
    metavar="all|NAME,...",
    callback=options.names,
    help="The machines to ask for; see `onnxq targets`.",
)
@samples_options
@options.kernel_threads_option
@workers_options
@click.option(
    "--prove",
    "proves",
    is_flag=True,
    help="Bound every sum of products for any input; without SAMPLES.",
)
@options.json_option
def predict(
    quantized: Path,
    samples: Path | None,
    machines: tuple[str, ...],
    threads: int,
    proves: bool,
    as_json: bool,
    reading: Samples,
    workers: Workers,
) -> None:
    """Predict on which machines the integers of QUANTIZED differ from exact ones.

    It names the layers, and the weights that cause it, without having the machines. Fails (exit
    code 10) where a named machine would differ on SAMPLES; without SAMPLES, where it could.
    """
    from onnxq.checking.predict import predict as run
    from onnxq.checking.prove import prove
    from onnxq.report.console import open_console
    from onnxq.report.print_prediction import print_certificate, print_prediction
    from onnxq.report.progress import progress_bar

    if proves:
        if samples is not None:
            raise click.UsageError("--prove is about any input: leave SAMPLES out.")
        certificate = prove(quantized, machines)
        if as_json:
            click.echo(certificate.to_json())
        else:
            print_certificate(open_console(), certificate)
        certificate.check()
        return
    with workers.executor() as executor, progress_bar("predict") as progress:
        found = run(
            quantized,
            replace(reading, source=samples),
            machines,
            executor=executor,
            threads=threads,
            progress=progress,
        )
    if as_json:
        click.echo(found.to_json())
    else:
        print_prediction(open_console(), found)
    found.check()


# --- The command that compares every integer with the reference kernels: cross-check


@click.command("cross-check")
@click.argument("quantized", type=options.PATH)
@click.argument("samples", type=options.PATH)
@samples_options
@click.option(
    "--max-lsb", type=options.Bound(min=0), metavar="N", help="Let integers differ by so many LSB."
)
@click.option(
    "--max-differing",
    type=options.Bound(0, 1),
    metavar="SHARE",
    help="Let this share of a node's integers differ.",
)
@click.option(
    "--max-output-lsb",
    type=options.Bound(min=0),
    metavar="N",
    help="Of the outputs end to end; default: what float nodes round.",
)
@click.option(
    "--allow-unchecked",
    is_flag=True,
    help="Integer nodes without a kernel are noted, and do not fail.",
)
@options.kernel_threads_option
@workers_options
@options.json_option
def cross_check(
    quantized: Path,
    samples: Path,
    max_lsb: float | None,
    max_differing: float | None,
    max_output_lsb: float | None,
    allow_unchecked: bool,
    threads: int,
    as_json: bool,
    reading: Samples,
    workers: Workers,
) -> None:
    """Does ONNX Runtime compute the integers that QUANTIZED says?

    Each integer node of its optimized graph is compared with the reference kernel, on the inputs
    that it had, then the whole model. Any difference fails (exit code 8), unless --max-lsb or
    --max-differing allow it; but not some last digits of outputs behind float nodes, while all
    integers agree.
    """
    from onnxq.checking.cross_check import cross_check as run
    from onnxq.checking.cross_findings import Unchecked
    from onnxq.report.console import open_console
    from onnxq.report.cross import print_cross_findings
    from onnxq.report.progress import progress_bar

    with workers.executor() as executor, progress_bar("cross-check") as progress:
        findings = run(
            quantized,
            replace(reading, source=samples),
            executor=executor,
            threads=threads,
            progress=progress,
        )
    if as_json:
        click.echo(findings.to_json())
    else:
        print_cross_findings(open_console(), findings)
    unchecked = Unchecked.ALLOWED if allow_unchecked else Unchecked.REFUSED
    findings.check(max_lsb, max_differing, unchecked, max_output_lsb)
    for node in findings.unchecked:
        say_note(f"{node.op_type} '{node.name}' was not checked: {node.reason}")
    if findings.end_to_end:
        say_note(f"end to end was not checked: {findings.end_to_end}")
