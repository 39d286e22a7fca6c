"""Batches of {input name: array} for a model, and the parts that travel to other processes."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onnxq.core.arrays import Array
from onnxq.core.brief import brief
from onnxq.page.card import card_of
from onnxq.samples.inputs import Batch

PART_BYTES = 1 << 23
"""Batches that travel together: enough that a message costs little beside them."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of {input name: array}; every `iter()` begins at the first one again.

    Attributes:
        count: number of batches, where it is known beforehand.
        produce: called once per iteration.
        cut: gives the batches from one number up to another as Batches that can be pickled, and
            read anywhere without those before them; None: the source has no such parts.
        ended: asked before each batch or part, whether these are enough; None: all are wanted.
    """

    where: str
    count: int | None
    produce: Callable[[], Iterator[Batch]]
    cut: Callable[[int, int], Batches] | None = None
    ended: Callable[[], bool] | None = None

    __repr__ = brief
    _repr_html_ = card_of

    def __iter__(self) -> Iterator[Batch]:
        batches = self.produce()
        ended = self.ended
        return batches if ended is None else itertools.takewhile(lambda _: not ended(), batches)

    def until(self, ended: Callable[[], bool]) -> Batches:
        """The same as long as the function does not say that these are enough."""
        return replace(self, ended=ended)

    def parts(self, size: int) -> Iterator[Batches]:
        """Parts of so many batches in order, each of which can be pickled.

        A part of .npy files is their names and rows; others are their batches, PART_BYTES of them
        and one batch at most. The count of a part is known.
        """
        if self.cut is not None and self.count is not None:
            for first in range(0, self.count, size):
                if self.ended is not None and self.ended():
                    return
                yield self.cut(first, min(first + size, self.count))
            return
        held: list[Batch] = []
        for batch in self:
            held.append(batch)
            nbytes = sum(array.nbytes for each in held for array in each.values())
            if len(held) == size or nbytes >= PART_BYTES:
                yield self._held(held)
                held = []
        if held:
            yield self._held(held)

    def _held(self, batches: Sequence[Batch]) -> Batches:
        return Batches(self.where, len(batches), partial(iter, batches))

    def in_memory(self) -> Batches:
        """All batches, read now, for a source that can be gone through once."""
        return self._held(list(self))


# --- Fingerprint of samples: tells whether those at hand are those that were seen before


def crc_of(batch: Mapping[str, Array], crc: int = 0) -> int:
    """CRC-32 of names, types, shapes and values, whatever the order of the names."""
    for name in sorted(batch):
        array = np.ascontiguousarray(batch[name])
        crc = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), crc)
        if array.dtype.hasobject:  # texts
            crc = zlib.crc32(repr(array.tolist()).encode(), crc)
            continue
        crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
    return crc
