"""A model with samples to calibrate on and a score of what it is for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnxq.core.arrays import Array
from scripts._timing import session

Batch = Mapping[str, Array]
Predict = Callable[[Batch], list[Array]]
"""Outputs of a model on one batch, in the model's order."""


@dataclass(frozen=True)
class Task:
    """A model and its job.

    Attributes:
        name: of the table's row.
        model: the float file.
        samples: to calibrate on; none of them is scored.
        score: share of the job that a model does right, from 0 to 1.
        measure: what that share is of.
        count: how many of them are scored.
        feedback: {output: input} of state that goes round.
    """

    name: str
    model: Path
    samples: Sequence[Batch]
    score: Callable[[Predict], float]
    measure: str
    count: int
    feedback: Mapping[str, str] = field(default_factory=dict)

    def rate(self, model: str | Path) -> float:
        """Score of a file, on one thread of ONNX Runtime."""
        run = session(Path(model))
        return self.score(lambda batch: [np.asarray(x) for x in run.run(None, dict(batch))])

    def resolution(self, score: float) -> float:
        """Differences of the score that its samples cannot tell from chance, with 95%.

        1.96 sqrt(p (1 - p) / n), with two hits and two misses added to what was counted (Agresti
        and Coull 1998), so that a score of 1 is not taken for a certain one.
        """
        tries = self.count + 4
        share = (score * self.count + 2) / tries
        return 1.96 * math.sqrt(share * (1 - share) / tries)
