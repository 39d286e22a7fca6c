"""Observing every value of a large array, of which one batch would count a part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.observers import Observer

WHOLE = 20_000  # values of a batch that are all counted


def observe_whole(observer: Observer, x: npt.NDArray[np.generic]) -> None:
    """Shows x in batches that are small enough."""
    for index, part in enumerate(np.array_split(x.reshape(-1), -(-x.size // WHOLE))):
        observer.observe(part, index)
