"""Detections: boxes with a score and a label each; suppressed, matched, and ranked.

IoU(a, b) = area of both / area of either
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]

MOST_CANDIDATES = 1000
"""Boxes of the highest scores that suppression looks at; more are of no use to anyone's 300."""
MOST_KEPT = 300
LEAST_AREA = 1e-12
RECALLS = np.linspace(0, 1, 101)
"""Recalls at which COCO's average precision is read."""


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes of one sample.

    Attributes:
        boxes: (n, 4): two corners.
        scores: (n,): 0 to 1.
        labels: (n,): class of each.
    """

    boxes: Reals
    scores: Reals
    labels: npt.NDArray[np.int64]

    def __getitem__(self, which: npt.NDArray[np.generic]) -> Detections:
        """Selects boxes by a mask or by indices."""
        return Detections(self.boxes[which], self.scores[which], self.labels[which])

    def from_score(self, least: float) -> Detections:
        """Keeps the boxes with so high a score; NaN is none."""
        return self[self.scores >= least]


NOTHING = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))


def iou(a: Reals, b: Reals) -> Reals:
    """IoU (n, m) of boxes (n, 4) and (m, 4)."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    both: Reals = np.clip(high - low, 0, None).prod(-1)
    areas = [np.clip(each[:, 2:] - each[:, :2], 0, None).prod(-1) for each in (a, b)]
    found: Reals = both / np.maximum(areas[0][:, None] + areas[1][None] - both, LEAST_AREA)
    return found


def suppressed(found: Detections, above: float) -> Detections:
    """Non-maximum suppression, class by class: the 300 of the highest scores that stay.

    A box goes where one of its class with a higher score overlaps it by more IoU than `above`.
    """
    order = np.argsort(-found.scores, kind="stable")[:MOST_CANDIDATES]
    kept: list[int] = []
    while order.size and len(kept) < MOST_KEPT:
        kept.append(int(order[0]))
        overlap = iou(found.boxes[order[:1]], found.boxes[order])[0]
        same = found.labels[order] == found.labels[order[0]]
        order = order[1:][~(same & (overlap > above))[1:]]
    return found[np.array(kept, np.int64)]


def matched(x: Detections, y: Detections, at: Reals) -> Bools:
    """Whether each y has an x of its class and IoU >= at, of its own; (thresholds, len(y)).

    The y of the highest score chooses first, and takes the x that it overlaps most.
    """
    found = np.zeros((len(at), len(y.scores)), np.bool_)
    if not len(x.scores):
        return found
    overlap = np.where(y.labels[:, None] == x.labels[None], iou(y.boxes, x.boxes), -1.0)
    free = np.ones((len(at), len(x.scores)), np.bool_)
    rows = np.arange(len(at))
    for i in np.argsort(-y.scores, kind="stable"):
        left = np.where(free, overlap[i], -1.0)
        best = left.argmax(1)
        found[:, i] = left[rows, best] >= at
        free[rows[found[:, i]], best[found[:, i]]] = False
    return found


def average_precision(scores: Reals, is_right: Bools, wanted: int) -> float:
    """Mean of the highest precision at recalls 0, 0.01 ... 1 (COCO): one class, one threshold."""
    right = is_right[np.argsort(-scores, kind="stable")].cumsum()
    precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
    places = np.searchsorted(right / wanted, RECALLS - 1e-9)
    return float(np.append(precision, 0.0)[np.minimum(places, len(precision))].mean())
