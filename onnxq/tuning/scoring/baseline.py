"""The float model on the samples of a tune: its outputs and its metric, found once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.core.memory import bytes_to_keep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.core.arrays import Array
    from onnxq.tuning.scoring.metric import Metric
    from onnxq.tuning.scoring.subject import Subject
    from onnxq.tuning.scoring.tuning_samples import TuningSamples


@dataclass(frozen=True, eq=False)
class Baseline:
    """The float model on one set of samples.

    Attributes:
        outputs: of each batch; None: they do not fit into memory, and the model runs again for
            every candidate.
    """

    subject: Subject
    samples: TuningSamples
    metric: float
    outputs: tuple[dict[str, Array], ...] | None

    def beside(self) -> Iterator[dict[str, Array]]:
        """Outputs of the float model, batch by batch."""
        if self.outputs is not None:
            yield from self.outputs
            return
        with self.subject.open_float() as session:
            run = self.subject.float_run(session)
            for batch in self.samples.batches:
                yield run(batch)


def baseline_of(subject: Subject, samples: TuningSamples, metric: Metric) -> Baseline:
    """The Baseline of a model on samples."""
    most = bytes_to_keep()
    kept: list[dict[str, Array]] | None = []
    taken = 0
    with subject.open_float() as session:
        run = subject.float_run(session)
        for batch in samples.batches:
            found = run(batch)
            taken += sum(x.nbytes for x in found.values() if isinstance(x, np.ndarray))
            if taken > most:
                kept = None
            if kept is not None:
                kept.append(found)
        if kept is not None:
            for batch, found in zip(samples.batches, kept, strict=True):
                run.keep(batch, found)
        run.restart()
        value = metric.value(None, run, samples)
    return Baseline(subject, samples, value, None if kept is None else tuple(kept))
