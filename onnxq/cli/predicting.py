"""The command that says on which machines integers differ: predict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.options import (
    PATH,
    json_option,
    kernel_threads_option,
    names,
)
from onnxq.cli.samples_options import samples_options
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from onnxq.samples import Samples


@click.command()
@click.argument("quantized", type=PATH)
@click.argument("samples", type=PATH, required=False)
@click.option(
    "--machines",
    default="all",
    show_default=True,
    metavar="all|NAME,...",
    callback=names,
    help="The machines to ask for; see `onnxq targets`.",
)
@samples_options
@kernel_threads_option
@workers_options
@json_option
def predict(
    quantized: Path,
    samples: Path | None,
    machines: tuple[str, ...],
    threads: int,
    as_json: bool,
    reading: Samples,
    workers: Workers,
) -> None:
    """Predict on which machines the integers of QUANTIZED differ from exact ones.

    It names the layers, and the weights that cause it, without having the machines. Fails (exit
    code 10) where a named machine would differ on SAMPLES; without SAMPLES, where it could.
    """
    with workers.executor() as executor:
        predict_machines((quantized, samples), machines, reading, executor, threads, as_json)


def predict_machines(
    paths: tuple[Path, Path | None],
    machines: Sequence[str],
    reading: Samples,
    executor: Executor | None,
    threads: int,
    as_json: bool,
) -> None:
    """Predicts, prints it, and fails where a machine differs.

    Args:
        paths: quantized model, samples or None.
        machines: names of targets, or "all".
        reading: how to read the samples.
        executor: whose workers run; None: this process.
        threads: of the kernels.
        as_json: the prediction as JSON, not as tables.
    """
    from onnxq.checking.predict import predict as run
    from onnxq.report.console import open_console
    from onnxq.report.print_prediction import print_prediction
    from onnxq.report.progress import progress_bar

    with progress_bar("predict") as progress:
        found = run(
            paths[0],
            replace(reading, source=paths[1]),
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
