"""The command that observes samples: calibrate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.common_options import say_note, say_written
from onnxq.cli.io_options import InputsOutputs, io_options
from onnxq.cli.options import (
    PATH,
    choice_option,
    output_option,
    provider_option,
    qconfig_option,
    set_option,
    shard,
    target_option,
    threads_option,
)
from onnxq.cli.samples_options import samples_options
from onnxq.cli.steps import calibrate_model, claim_outputs, given, load_model, prepare_model
from onnxq.cli.worker_options import Workers, workers_options
from onnxq.core import signals
from onnxq.report.wrapping import say_aside

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command()
@click.argument("model", type=PATH)
@click.argument("samples", type=PATH)
@output_option
@qconfig_option
@io_options
@set_option
@choice_option
@target_option
@threads_option
@samples_options
@click.option("--resume", is_flag=True, help="Go on from the statistics in the output file.")
@click.option(
    "--shard",
    metavar="I/N",
    default="1/1",
    callback=shard,
    help="Only every N-th batch, from the I-th on: 1/4, 2/4, 3/4 and 4/4 are all.",
)
@click.option(
    "--checkpoint",
    type=PATH,
    help="Keep what was seen in this file, every so often and when stopped; the same command goes "
    "on from it. Removed at the end.",
)
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How often; less often where writing it takes long.",
)
@provider_option
@workers_options
def calibrate(
    model: Path,
    samples: Path,
    output: Path,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    choice: str | None,
    target: str | None,
    threads: int | None,
    reading: Samples,
    resume: bool,
    shard: tuple[int, int],
    checkpoint: Path | None,
    checkpoint_every: float,
    provider: str,
    io: InputsOutputs,
    workers: Workers,
) -> None:
    """Observe the activations of MODEL on SAMPLES: an npz or npy file, or a folder of them.

    Ctrl-C and SIGTERM stop it behind a batch, and save what was seen: in the checkpoint, or else in
    the output, which --resume goes on from.
    """
    outputs = [output, *given(checkpoint)]
    claim_outputs(model, outputs, [samples, *given(qconfig)])
    source = load_model(model, outputs)
    from onnxq.samples.ignored import check_ignored
    from onnxq.static.calibrate import Checkpoint, Statistics

    prepared = prepare_model(
        source, qconfig, overrides, target, reading.feedback, choice=choice, io=io
    )
    prepared = prepared.read_from(model)
    kept = Checkpoint(checkpoint, checkpoint_every) if checkpoint else None
    given_samples = replace(reading, source=samples)
    check_ignored(given_samples)
    previous = Statistics.load(output) if resume and output.exists() else None
    with signals.stoppable() as stopped:
        statistics = calibrate_model(
            prepared,
            given_samples,
            previous,
            shard,
            stopped,
            kept,
            threads=threads,
            provider=provider,
            workers=workers,
        )
    count = len(statistics.batches)
    if stopped.is_set() and checkpoint is not None:
        say_aside(f"stopped after {count} batches; go on with the same command")
        raise click.exceptions.Exit(signals.exit_code() or 0)
    replace(statistics, stopped=stopped.is_set()).save(output)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    say_written(f"{output}: {len(prepared.observed)} tensors, {count} batches")
    for tensor, why in statistics.not_finite.items():
        say_note(f"tensor '{tensor}': {why}; nodes around it will stay in float")
    for note in statistics.notes_on_samples():  # the other shards may still come
        say_note(note)
    if stopped.is_set():
        say_aside("stopped; go on with the same command and --resume")
        raise click.exceptions.Exit(signals.exit_code() or 0)
