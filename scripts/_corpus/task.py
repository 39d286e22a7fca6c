"""A model with samples to calibrate on and a score of what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.core.arrays import Array

if TYPE_CHECKING:
    from pathlib import Path

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
        feedback: {output: input} of state that goes round.
    """

    name: str
    model: Path
    samples: Sequence[Batch]
    score: Callable[[Predict], float]
    measure: str
    feedback: Mapping[str, str] = field(default_factory=dict)
