"""Commands that time: bench, costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli import options
from onnxq.cli.common_options import say_written
from onnxq.cli.samples_options import stateless_samples_options

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command()
@click.argument("model", metavar="FLOAT", type=options.PATH)
@click.argument("quantized", metavar="QUANTIZED", type=options.PATH)
@click.argument("samples", type=options.PATH, required=False)
@stateless_samples_options
@options.shape_option
@click.option(
    "--runs", type=click.IntRange(min=1), default=50, show_default=True, help="Timed pairs."
)
@options.provider_option
@options.json_option
def bench(
    model: Path,
    quantized: Path,
    samples: Path | None,
    reading: Samples,
    given_shapes: dict[str, tuple[int, ...]],
    runs: int,
    provider: str,
    as_json: bool,
) -> None:
    """Time both models in turns, on one thread, on SAMPLES or on random inputs.

    The first batch of SAMPLES is run. Where sizes beside the batch are dynamic, give SAMPLES or
    --shape: they decide how long a run takes.
    """
    from onnxq.checking.bench import bench as run
    from onnxq.report import console, json_values

    source = replace(reading, source=samples)
    result = run(model, quantized, source, shapes=given_shapes, runs=runs, provider=provider)
    if as_json:
        click.echo(json_values.to_text(json_values.benchmark(result)))
        return
    console.print_benchmark(console.open_console(), result)


@click.command()
@options.output_option
@options.target_option
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Over all measurements; the least time counts.",
)
def costs(output: Path, target: str | None, passes: int) -> None:
    """Measure how long this machine takes for each kind of node, in float and in integers.

    Takes 2 to 8 minutes a pass, on one thread. Other programs disturb it: more passes help. The
    table is a CSV file, for --costs; --target is this machine's, unless you know better. For one
    model, `onnxq tune` without --costs measures its own nodes.
    """
    from onnxq.cli.steps import claim
    from onnxq.report.progress import progress_bar
    from onnxq.targets.machines import AUTO
    from onnxq.times.microbenchmarks import measure_costs

    claim([output], [])
    with progress_bar("costs") as progress:
        table = measure_costs(target or AUTO, passes, progress)
    table.save(output)
    say_written(f"{output}: {len(table.timings)} times, {table.throughput}; {table.machine}")
