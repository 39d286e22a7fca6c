"""Checkpoint: the file that keeps what a calibration has seen, for the next one to go on from."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.core.atomic import check_writable
from onnxq.errors import CalibrationError, listed
from onnxq.static.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onnxq.static.shard import Shard

EVERY_S = 60.0
MOST_OF_THE_TIME = 20  # times what a writing took: it costs at most 5%


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A .stats file that is written every so often.

    Attributes:
        path: of the file.
        every_s: seconds between two writings, at least; more where writing takes long.
    Raises:
        CalibrationError: every_s is negative.
    """

    path: Path
    every_s: float = EVERY_S

    def __post_init__(self) -> None:
        if not self.every_s >= 0:
            raise CalibrationError(
                f"checkpoint '{self.path}': got {self.every_s} seconds between two writings; "
                "wanted 0 or more."
            )


def as_checkpoint(value: Checkpoint | str | Path) -> Checkpoint:
    """Checkpoint that a path stands for."""
    return value if isinstance(value, Checkpoint) else Checkpoint(Path(value))


class Keeper:
    """Writes a Checkpoint when it is time to.

    Raises:
        OutputError: its file cannot be written.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        check_writable(checkpoint.path)
        self._checkpoint = checkpoint
        self._due = time.monotonic() + checkpoint.every_s

    def load(self, model_hash: str, shards: Collection[Shard]) -> Statistics | None:
        """Statistics that the file holds; None: there is no file.

        Raises:
            CalibrationError: it is damaged, of another model, or of another shard.
        """
        path = self._checkpoint.path
        if not path.exists():
            return None
        try:
            seen = Statistics.load(path)
            seen.check_model(model_hash)
            _check_shards(seen, shards)
        except CalibrationError as error:
            raise CalibrationError(
                f"checkpoint '{path}': {error} Delete it, or name another file."
            ) from error
        return seen

    def keep_sometimes(self, statistics: Callable[[], Statistics]) -> None:
        """Writes what the function gives, if it is time to."""
        if time.monotonic() >= self._due:
            self.keep(statistics())

    def keep(self, seen: Statistics) -> None:
        """Writes the file, which is there whole or not at all."""
        began = time.monotonic()
        seen.save(self._checkpoint.path)
        took = time.monotonic() - began
        self._due = began + took + max(self._checkpoint.every_s, MOST_OF_THE_TIME * took)


def _check_shards(seen: Statistics, shards: Collection[Shard]) -> None:
    others = seen.shards.difference(shards)
    if others:
        raise CalibrationError(
            f"it is of shard {listed([str(s) for s in sorted(others)])}; this run is of "
            f"{listed([str(s) for s in sorted(shards)])}."
        )
