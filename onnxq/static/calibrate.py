"""Runs the observers over Samples: Prepared + Samples -> Statistics."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from onnxq.samples import open_samples
from onnxq.static.arguments import check_prepared
from onnxq.static.calibration import Calibration
from onnxq.static.checkpoint import Checkpoint, Keeper, as_checkpoint
from onnxq.static.shard import WHOLE, Shard
from onnxq.static.statistics import Statistics

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.static.calibration import Observed

__all__ = ["Calibration", "Checkpoint", "Shard", "Statistics", "calibrate"]

Progress = Callable[[int, int | None], None]
"""progress(batches done, batches in all or None where that is not known)."""


def calibrate(
    prepared: Observed,
    samples: object,
    *,
    statistics: Statistics | None = None,
    first_batch: int | None = None,
    shard: Shard = WHOLE,
    checkpoint: Checkpoint | str | Path | None = None,
    batch_size: int | None = None,
    ignore: Collection[str] = (),
    progress: Progress | None = None,
    threads: int | None = None,
) -> Statistics:
    """Statistics of the samples' activations, added to those of an earlier run where given.

    Args:
        prepared: the model, and the observer of each tensor.
        samples: Samples, or what `onnxq.samples.open_samples` takes.
        statistics: what was seen before; it stays as it is.
        first_batch: global number of the samples' first batch; None: `statistics.next_batch`, so
            that the samples come on top. With the number that an interrupted run began with (0),
            the batches that `statistics` has are checked to be the same ones and are not counted
            again.
        shard: the part of the samples to observe; merge the Statistics of all shards afterwards.
        checkpoint: file that keeps what was seen, every minute and at the end. A run that begins
            with one that is there goes on from it, in place of `statistics`: with the same samples,
            the result is that of one run. Delete it when the result is saved.
        batch_size: samples per run; None: the model's, else 1.
        ignore: names of arrays in the samples that are no inputs.
        progress: called after each batch.
        threads: of one inference; None: one per core.

    Raises:
        CalibrationError: samples that do not suit the model; statistics or a checkpoint of another
            model or other observers; a checkpoint of another shard; a batch that differs from the
            one that they have seen under its number. NaN or Inf in an input; in an activation, they
            make its readers float.
        OutputError: the checkpoint cannot be written.
    """
    check_prepared(prepared, "calibrate")
    keeper = None if checkpoint is None else Keeper(as_checkpoint(checkpoint))
    first = first_batch
    if first is None:
        first = statistics.next_batch if statistics else 0
    if keeper is not None:
        shards = {shard, *(statistics.shards if statistics else ())}
        statistics = keeper.load(prepared.model_hash, shards) or statistics
    with Calibration(prepared, statistics, shard=shard, threads=threads) as run:
        batches = open_samples(samples, run.inputs, batch_size, ignore)
        for done, batch in enumerate(batches):
            if shard.has(first + done) and not run.has_seen(batch, first + done):
                run.observe(batch, first + done)
            elif prepared.feedback:
                run.advance(batch)
            if keeper is not None:
                keeper.keep_sometimes(run.statistics)
            if progress is not None:
                progress(done + 1, batches.count)
        seen = run.statistics()
    if keeper is not None:
        keeper.keep(seen)
    return seen
