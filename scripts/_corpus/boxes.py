"""Boxes of text on a page, from the map of probabilities of a detector with a shrunk target (DB).

Liao et al. 2020, Real-time Scene Text Detection with Differentiable Binarization: the network is
trained on regions that are shrunk, and a found one is grown by its area over its outline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.core.arrays import Singles

Box = tuple[float, float, float, float]
"""Left, top, end, bottom."""
TEXT_AT, GROWN, LEAST_SIDE = 0.3, 1.6, 3
"""PP-OCR's: probability of text, outlines of area by which a region grows, pixels of a region."""


def boxes(probabilities: Singles) -> list[Box]:
    """Upright boxes of the regions of text in (height, width), each grown to the whole word."""
    found = []
    for left, top, end, bottom in regions(probabilities > TEXT_AT):
        wide, high = end - left, bottom - top
        if min(wide, high) >= LEAST_SIDE:
            by = GROWN * wide * high / (2 * (wide + high))
            found.append((left - by, top - by, end + by, bottom + by))
    return found


def regions(mask: npt.NDArray[np.bool_]) -> list[Box]:
    """Boxes around what hangs together, by sides or corners, from top to bottom."""
    left = mask.copy()
    found = []
    while left.any():
        part = np.zeros_like(left)
        part[tuple(np.argwhere(left)[0])] = True
        size = 0
        while part.sum() > size:
            size = int(part.sum())
            part = _wider(part) & left
        left &= ~part
        found.append(box_of(part))
    return found


def _wider(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mask of what is set and of its eight neighbours."""
    padded = np.pad(mask, 1)
    high = padded[:-2] | padded[1:-1] | padded[2:]
    return np.asarray(high[:, :-2] | high[:, 1:-1] | high[:, 2:])


def box_of(mask: npt.NDArray[np.bool_]) -> Box:
    """The box around all that is set; one pixel at least is."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def overlap(one: Box, other: Box) -> float:
    """Area of both over area of either."""
    wide = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    high = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in (one, other)]
    return wide * high / (sum(areas) - wide * high)
