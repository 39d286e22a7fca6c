"""The command that compares a quantized model with float and with the reference: verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onnxq.cli.options import (
    PATH,
    Bound,
    batch_size_option,
    feedback_option,
    ignore_option,
    json_option,
    refuse_options,
)
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@click.command()
@click.argument("paths", metavar="[FLOAT] QUANTIZED SAMPLES", nargs=-1, type=PATH)
@click.option(
    "--reference",
    is_flag=True,
    help="Compare every integer with the reference kernels. Needs no FLOAT.",
)
@batch_size_option
@ignore_option
@feedback_option
@click.option(
    "--min-sqnr", type=Bound(), metavar="DB", help="Fail (exit code 8) where the SQNR is lower."
)
@click.option(
    "--max-steps",
    type=Bound(min=0),
    metavar="N",
    help="Fail where an error is larger, in steps.",
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Compare these tensors and outputs only."
)
@click.option(
    "--max-differing",
    type=Bound(0, 1),
    metavar="SHARE",
    help="With --reference: let this share of a node's integers differ.",
)
@click.option(
    "--max-output-steps",
    type=Bound(min=0),
    metavar="N",
    help="With --reference: of the outputs end to end; default: what float nodes round.",
)
@click.option(
    "--allow-unchecked",
    is_flag=True,
    help="With --reference: integer nodes without a kernel are noted, and do not fail.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="With --reference or --isa: of the kernels.",
)
@click.option(
    "--isa",
    metavar="all|NAME[,NAME]",
    help="Predict on which machines the integers differ. Needs no FLOAT; SAMPLES may be left out.",
)
@workers_options
@json_option
def verify(
    paths: tuple[Path, ...],
    reference: bool,
    batch_size: int | None,
    ignore: tuple[str, ...],
    feedback: dict[str, str],
    min_sqnr: float | None,
    max_steps: float | None,
    only: tuple[str, ...],
    max_differing: float | None,
    max_output_steps: float | None,
    allow_unchecked: bool,
    threads: int,
    isa: str | None,
    as_json: bool,
    workers: Workers,
) -> None:
    """Run both models on SAMPLES side by side: what did quantization change?

    The bounds hold for every tensor and output that is compared; --only narrows that down.

    With --reference: does ONNX Runtime compute the integers that the model says? Each integer node
    of its optimized graph is compared with the reference kernel, on the inputs that it had, then
    the whole model. Any difference fails (exit code 8), unless --max-steps or --max-differing
    allow it; but not some last digits of outputs behind float nodes, while all integers agree.

    With --isa: on which machines would the integers differ from exact ones, in which layers, and
    which weights cause it? See `onnxq targets` for the names. Fails (exit code 10) where a named
    machine would differ on SAMPLES; without SAMPLES, where it could.
    """
    reading = {"batch_size": batch_size, "ignore": ignore, "feedback": feedback}
    if isa is not None:
        bounds: dict[str, object] = {
            "--reference": reference or None,
            "--min-sqnr": min_sqnr,
            "--max-steps": max_steps,
            "--only": only or None,
            "--max-differing": max_differing,
            "--max-output-steps": max_output_steps,
            "--allow-unchecked": allow_unchecked or None,
        }
        refuse_options("with --isa", bounds)
        with workers.executor() as executor:
            _predict(paths, isa, {**reading, "executor": executor}, threads, as_json)
        return
    if reference:
        refuse_options("with --reference", {"--min-sqnr": min_sqnr, "--only": only or None})
        from onnxq.checking.cross_findings import Unchecked

        allowed = {
            "max_steps": max_steps,
            "max_differing": max_differing,
            "max_output_steps": max_output_steps,
            "unchecked": Unchecked.ALLOWED if allow_unchecked else Unchecked.REFUSED,
        }
        with workers.executor() as executor:
            _verify_reference(paths, {**reading, "executor": executor}, allowed, threads, as_json)
        return
    refuse_options(
        "without --reference",
        {
            "--max-differing": max_differing,
            "--max-output-steps": max_output_steps,
            "--allow-unchecked": allow_unchecked or None,
        },
    )
    with workers.executor() as executor:
        given = {**reading, "executor": executor}
        _verify_float(paths, given, (min_sqnr, max_steps), only, as_json)


def _predict(
    paths: tuple[Path, ...], isa: str, reading: dict[str, Any], threads: int, as_json: bool
) -> None:
    from onnxq.checking.predict import predict
    from onnxq.report.console import open_console
    from onnxq.report.print_prediction import print_prediction
    from onnxq.report.progress import progress_bar

    if len(paths) not in (1, 2):
        raise click.UsageError(f"wanted QUANTIZED [SAMPLES]; got {len(paths)} path(s).")
    names = [name.strip() for name in isa.split(",")]
    samples = paths[1] if len(paths) > 1 else None
    with progress_bar("verify --isa") as progress:
        found = predict(paths[0], samples, names, **reading, threads=threads, progress=progress)
    if as_json:
        click.echo(found.to_json())
    else:
        print_prediction(open_console(), found)
    found.check()


def _verify_float(
    paths: tuple[Path, ...],
    reading: dict[str, Any],
    bounds: tuple[float | None, float | None],
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    from onnxq.checking.verify import EVERYTHING
    from onnxq.checking.verify import verify as run
    from onnxq.report import console
    from onnxq.report.progress import progress_bar

    if len(paths) != 3:
        raise click.UsageError(
            f"wanted FLOAT QUANTIZED SAMPLES; got {len(paths)} path(s). Without the float model, "
            "--reference compares QUANTIZED with the reference kernels."
        )
    with progress_bar("verify") as progress:
        findings = run(*paths, **reading, only=only or EVERYTHING, progress=progress)
    if as_json:
        click.echo(findings.to_json())
    else:
        console.print_findings(console.open_console(), findings)
    findings.check(*bounds)


def _verify_reference(
    paths: tuple[Path, ...],
    reading: dict[str, Any],
    bounds: Mapping[str, Any],
    threads: int,
    as_json: bool,
) -> None:
    from onnxq.checking.cross_check import cross_check
    from onnxq.report.console import open_console
    from onnxq.report.cross import print_cross_findings
    from onnxq.report.progress import progress_bar

    if len(paths) not in (2, 3):
        raise click.UsageError(f"wanted [FLOAT] QUANTIZED SAMPLES; got {len(paths)} path(s).")
    if len(paths) == 3:
        click.echo(f"note: --reference does not read the float model '{paths[0]}'", err=True)
    with progress_bar("verify --reference") as progress:
        findings = cross_check(*paths[-2:], **reading, threads=threads, progress=progress)
    if as_json:
        click.echo(findings.to_json())
    else:
        print_cross_findings(open_console(), findings)
    findings.check(**bounds)
    for node in findings.unchecked:
        click.echo(f"note: {node.op_type} '{node.name}' was not checked: {node.reason}", err=True)
    if findings.end_to_end:
        click.echo(f"note: end to end was not checked: {findings.end_to_end}", err=True)
