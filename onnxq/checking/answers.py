"""Answers of a quantized model beside float's, where outputs leave no doubt what they hold."""

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from onnxq.errors import QConfigError
from onnxq.metrics import Boxes, FloatAgreement, Frames, Masks
from onnxq.quantized.output_verdict import Answers

FIGURES = {Boxes: ("boxes", "F1"), Masks: ("masks", "mean IoU"), Frames: ("rows", "same class")}
"""Metric -> what it counts, and its figure."""
MOST_VALUES = 1 << 24
"""Numbers of an output that is looked at: larger ones are logits of tokens, which have KL."""


class RecognizedAnswers:
    """Running figures of the kinds of answers that the outputs are sure to hold."""

    def __init__(self) -> None:
        self._open: list[FloatAgreement[Any]] = [kind() for kind in FIGURES]

    def update(self, x: Mapping[str, object], y: Mapping[str, object]) -> None:
        """Adds a batch; the first one of float tells what the outputs hold."""
        ours = {name: array for name, array in x.items() if _is_looked_at(array)}
        theirs = {name: array for name, array in y.items() if _is_looked_at(array)}
        if ours.keys() != theirs.keys():
            self._open = []
        self._open = [each for each in self._open if _is_sure(each, ours)]
        for each in self._open:
            each.update(ours, theirs)

    @property
    def found(self) -> tuple[Answers, ...]:
        """The figures of those that float has any of."""
        return tuple(
            Answers(*FIGURES[type(each)], each.value, each.count, each.layout.words)
            for each in self._open
            if each.count
        )


def _is_looked_at(x: object) -> TypeGuard[npt.NDArray[Any]]:
    return isinstance(x, np.ndarray) and x.dtype.kind in "biuf" and x.size <= MOST_VALUES


def _is_sure(beside: FloatAgreement[Any], x: Mapping[str, Any]) -> bool:
    try:
        return (beside.known or beside.layout_of(x)).is_sure
    except QConfigError:  # no such output, or one that may be something else
        return False
