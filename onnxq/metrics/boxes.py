"""Boxes of a detector beside its float model's: matched-box F1 and mean average precision.

    F1  = 2 TP / (2 TP + FP + FN)          of boxes with a score of min_score or more
    mAP = mean over classes and over IoU = 0.5, 0.55 ... 0.95 of the average precision

TP is a quantized box that has a float box of its class, and IoU >= `iou`, of its own; FP one
without, FN a float box without. F1 sees what a threshold keeps, mAP the order of scores, too.
"""

from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from onnxq.metrics.box_layouts import BoxOptions, box_layout
from onnxq.metrics.detections import NOTHING, Detections, average_precision, matched
from onnxq.metrics.float_agreement import (
    FloatAgreement,
    Layout,
    Outputs,
    check_one_of,
    check_share,
    numbers,
)

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RANKED_FROM = 0.01
"""Score from which quantized boxes are ranked for mAP."""


@dataclass
class Boxes(FloatAgreement[list[Detections]]):
    """Running counts of boxes; options that are None are derived from shapes and values.

    Attributes:
        figure: "f1" or "map": what `value` is.
        format: "xywh" (centre and size) or "xyxy" (corners).
        objectness: "yes": the column behind a box is one, and multiplies the scores; "no".
        scores: "probabilities", or logits: "sigmoid", or "softmax" with a class of no object.
        axis: of a single tensor, 1 or 2, along which a box and its scores stand.
        min_score: of boxes that count.
        iou: of a match.
        suppress: IoU above which a box goes for one of its class with a higher score; not asked of
            outputs that the model suppresses itself.
    Raises:
        QConfigError: another value than these.
    """

    figure: str = "f1"
    format: str | None = None
    objectness: str | None = None
    scores: str | None = None
    axis: int | None = None
    min_score: float = 0.25
    iou: float = 0.5
    suppress: float = 0.45
    _right: int = field(default=0, init=False, repr=False)
    _wrong: int = field(default=0, init=False, repr=False)
    _wanted: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _ranked: list[tuple[Detections, npt.NDArray[np.bool_]]] = field(
        default_factory=list, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_one_of("figure", self.figure, "f1", "map")
        check_one_of("format", self.format, None, "xywh", "xyxy")
        check_one_of("objectness", self.objectness, None, "yes", "no")
        check_one_of("scores", self.scores, None, "probabilities", "sigmoid", "softmax")
        check_one_of("axis", self.axis, None, 1, 2)
        for option in ("min_score", "iou", "suppress"):
            check_share(option, getattr(self, option))

    def layout_of(self, outputs: Outputs) -> Layout[list[Detections]]:
        """The layout of a detector's outputs; LayoutError where none of those known fits."""
        options = BoxOptions(self.format, self.objectness, self.scores, self.axis)
        return box_layout(numbers(outputs, None, "boxes"), options, self.suppress)

    def add(self, x: list[Detections], y: list[Detections]) -> None:
        """Adds the boxes of a batch."""
        for ours, theirs in zip_longest(x, y, fillvalue=NOTHING):
            wanted, kept = (each.from_score(self.min_score) for each in (ours, theirs))
            right = int(matched(wanted, kept, np.array([self.iou])).sum())
            self._right += right
            self._wrong += len(kept.scores) - right
            for label in wanted.labels.tolist():
                self._wanted[label] = self._wanted.get(label, 0) + 1
            ranked = theirs.from_score(min(RANKED_FROM, self.min_score))
            self._ranked.append((ranked, matched(wanted, ranked, THRESHOLDS)))

    @property
    def _count(self) -> int:
        """Boxes of the float model."""
        return sum(self._wanted.values())

    @property
    def f1(self) -> float:
        """Matched-box F1, 0 to 1."""
        every = self.count + self._right + self._wrong
        return 2 * self._right / every if every else 1.0

    @property
    def mean_ap(self) -> float:
        """Mean average precision, 0 to 1, over the classes that the float model finds."""
        if not self.count:
            return 1.0
        labels, scores = (
            np.concatenate([getattr(found, name) for found, _ in self._ranked])
            for name in ("labels", "scores")
        )
        right = np.concatenate([each for _, each in self._ranked], axis=1)
        found = [
            average_precision(scores[labels == label], row[labels == label], wanted)
            for label, wanted in self._wanted.items()
            for row in right
        ]
        return float(np.mean(found))

    @property
    def value(self) -> float:
        """F1 or mAP, as `figure` says."""
        return self.f1 if self.figure == "f1" else self.mean_ap
