"""The command that times this machine: costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onnxq.cli.options import output_option, target_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@output_option
@target_option
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Over all measurements; the least time counts.",
)
def costs(output: Path, target: str | None, passes: int) -> None:
    """Measure how long this machine takes for each kind of node, in float and in integers.

    Takes some three minutes a pass, on one thread. Other programs disturb it: more passes help. The
    table is a CSV file, for --costs; --target is this machine's, unless you know better.
    """
    from onnxq.cli.steps import claim
    from onnxq.clock import measure_costs
    from onnxq.report.progress import progress_bar
    from onnxq.targets.machines import AUTO

    claim([output], [])
    with progress_bar("costs") as progress:
        table = measure_costs(target or AUTO, passes, progress)
    table.save(output)
    click.echo(f"{output}: {len(table.timings)} times, {table.throughput}; {table.machine}")
