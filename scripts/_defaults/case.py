"""A float model on which the default is measured, with its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import onnxq
from scripts._architectures._parts import Batch, Feeds, batches

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

Draw = Callable[[int, int], Feeds]
"""Inputs of a module: (samples, seed) -> feeds."""
Outputs = list[npt.NDArray[np.float64]]
CALIBRATED, TESTED = 32, 16  # samples
CALIBRATION_SEED, TEST_SEED, EXPORT_SEED = 7, 11, 5
TOGETHER = 4  # samples of a batch


@dataclass(frozen=True, slots=True)
class Case:
    """One model.

    Attributes:
        model: the float file.
        calibration: batches.
        test: batches that nothing is calibrated on: for SQNR, and for the score.
        timed: {condition: batch of one}; the condition is "" where there is one only.
        score: of the first output on all of `test`, from 0 to 1; None: SQNR alone counts.
    """

    model: Path
    calibration: list[Batch]
    test: list[Batch]
    timed: Mapping[str, Batch]
    score: Callable[[Outputs], float] | None = None


def exported(made: tuple[nn.Module, Draw], path: Path) -> Case:
    """A module with random weights and what draws its inputs, as a case without a score."""
    module, feeds = made
    onnxq.export(module, feeds(TOGETHER, EXPORT_SEED), path)
    return drawn(path, feeds)


def drawn(path: Path, feeds: Draw) -> Case:
    """A file and what draws its inputs."""
    return Case(
        path,
        batches(feeds(CALIBRATED, CALIBRATION_SEED), TOGETHER),
        batches(feeds(TESTED, TEST_SEED), TOGETHER),
        {"": batches(feeds(1, EXPORT_SEED), 1)[0]},
    )


def top1(labels: npt.NDArray[np.integer]) -> Callable[[Outputs], float]:
    """Share of rows of the first output whose largest element is at the label."""
    return lambda outputs: float((outputs[0].argmax(1) == labels).mean())
