"""The command that compares a quantized model with float: verify.

Until version 1.0 it does with --reference what cross-check does, and with --isa what predict does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.common_options import say_note
from onnxq.cli.cross_checking import allowances, check_integers
from onnxq.cli.options import (
    PATH,
    Bound,
    json_option,
    refuse_options,
)
from onnxq.cli.predicting import predict_machines
from onnxq.cli.samples_options import samples_options
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from onnxq.samples import Samples


@click.command()
@click.argument("paths", metavar="FLOAT QUANTIZED SAMPLES", nargs=-1, type=PATH)
@click.option(
    "--reference",
    is_flag=True,
    hidden=True,
    help="Until 1.0: `onnxq cross-check`.",
)
@samples_options
@click.option(
    "--min-sqnr",
    type=Bound(),
    metavar="DB",
    help="Fail (exit code 8) where a tensor or float output has a lower SQNR; see --only.",
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
    hidden=True,
    help="With --reference.",
)
@click.option(
    "--max-output-steps",
    type=Bound(min=0),
    hidden=True,
    help="With --reference.",
)
@click.option(
    "--allow-unchecked",
    is_flag=True,
    hidden=True,
    help="With --reference.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    hidden=True,
    help="With --reference or --isa.",
)
@click.option(
    "--isa",
    hidden=True,
    help="Until 1.0: `onnxq predict`.",
)
@workers_options
@json_option
def verify(
    paths: tuple[Path, ...],
    reference: bool,
    min_sqnr: float | None,
    max_steps: float | None,
    only: tuple[str, ...],
    max_differing: float | None,
    max_output_steps: float | None,
    allow_unchecked: bool,
    threads: int,
    isa: str | None,
    as_json: bool,
    reading: Samples,
    workers: Workers,
) -> None:
    """Run both models on SAMPLES side by side: what did quantization change?

    The bounds hold for every tensor and output that is compared; --only narrows that down. No
    SQNR is asked of outputs of integers, such as indices.

    `onnxq cross-check` compares the integers with exact ones, `onnxq predict` other machines.
    """
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
        asked = _asked_of_machines(paths)
        machines = [name.strip() for name in isa.split(",")]
        with workers.executor() as executor:
            predict_machines(asked, machines, reading, executor, threads, as_json)
        return
    if reference:
        refuse_options("with --reference", {"--min-sqnr": min_sqnr, "--only": only or None})
        compared = _compared_integers(paths)
        allowed = allowances(max_steps, max_differing, max_output_steps, allow_unchecked)
        with workers.executor() as executor:
            check_integers(compared, reading, allowed, executor, threads, as_json)
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
        _verify_float(paths, reading, executor, (min_sqnr, max_steps), only, as_json)


def _asked_of_machines(paths: tuple[Path, ...]) -> tuple[Path, Path | None]:
    """(quantized model, samples or None) of --isa, which has a command of its own."""
    _say_new_name("--isa NAMES", "predict QUANTIZED [SAMPLES] --machines NAMES")
    if len(paths) not in (1, 2):
        raise click.UsageError(f"wanted QUANTIZED [SAMPLES]; got {len(paths)} path(s).")
    return paths[0], paths[1] if len(paths) > 1 else None


def _compared_integers(paths: tuple[Path, ...]) -> tuple[Path, Path]:
    """(quantized model, samples) of --reference, which has a command of its own."""
    _say_new_name("--reference", "cross-check QUANTIZED SAMPLES")
    if len(paths) not in (2, 3):
        raise click.UsageError(f"wanted [FLOAT] QUANTIZED SAMPLES; got {len(paths)} path(s).")
    if len(paths) == 3:
        say_note(f"--reference does not read the float model '{paths[0]}'")
    return paths[-2], paths[-1]


def _say_new_name(option: str, command: str) -> None:
    """Says in a line which command does now what the option does until 1.0."""
    say_note(f"`verify {option}` is `onnxq {command}`, and ends with 1.0")


def _verify_float(
    paths: tuple[Path, ...],
    reading: Samples,
    executor: Executor | None,
    bounds: tuple[float | None, float | None],
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    from onnxq.checking.sides import EVERYTHING
    from onnxq.report.console import open_console
    from onnxq.report.print_findings import print_findings
    from onnxq.report.progress import progress_bar
    from onnxq.survey.verified import verify as run

    if len(paths) != 3:
        raise click.UsageError(
            f"wanted FLOAT QUANTIZED SAMPLES; got {len(paths)} path(s). Without the float model, "
            "`onnxq cross-check` compares QUANTIZED with the reference kernels."
        )
    with progress_bar("verify") as progress:
        findings = run(
            *paths[:2],
            replace(reading, source=paths[2]),
            executor=executor,
            only=only or EVERYTHING,
            progress=progress,
        )
    if as_json:
        click.echo(findings.to_json())
    else:
        print_findings(open_console(), findings, *bounds)
    findings.check(*bounds)
