"""Shard: the part of the samples that one run of calibration observes."""

from collections.abc import Iterable
from dataclasses import dataclass

from onnxq.errors import CalibrationError, listed

MOST_SHARDS = 1 << 16  # a note names those that are missing


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Every `count`-th batch, from batch `index` on: batch i belongs to shard i % count.

    Attributes:
        index: 0 to count - 1.
        count: number of shards.
    Raises:
        CalibrationError: the index is outside, or the shards are more than MOST_SHARDS.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= MOST_SHARDS:
            raise CalibrationError(
                f"shard {self.index} of {self.count}; wanted an index from 0 to {self.count - 1}, "
                f"of at most {MOST_SHARDS} shards."
            )

    def has(self, batch: int) -> bool:
        """Whether the batch with this global number belongs to the shard."""
        return batch % self.count == self.index

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.count}"


WHOLE = Shard()


def notes_on_missing(shards: Iterable[Shard]) -> list[str]:
    """A note for every number of shards of which some were merged, and some were not."""
    merged = set(shards)
    notes = []
    for count in sorted({shard.count for shard in merged}):
        missing = [str(s) for i in range(count) if (s := Shard(i, count)) not in merged]
        if missing:
            notes.append(
                f"the statistics are of {count - len(missing)} of {count} shards: "
                f"{listed(missing)} missing. Calibrate with --shard {missing[0]} (in Python "
                f"Shard({int(missing[0].partition('/')[0]) - 1}, {count})) and merge it too."
            )
    return notes
