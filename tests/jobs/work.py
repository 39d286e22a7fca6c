"""Work that processes can import."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Square:
    """Squares whole numbers; a file per getting ready, named by its process."""

    folder: Path | None = None
    delay_s: float = 0.0

    def __call__(self) -> Callable[[int], int]:
        if self.folder is not None:
            (self.folder / f"{os.getpid()}-{threading.get_ident()}").touch()
        return self._square

    def _square(self, x: int) -> int:
        time.sleep(self.delay_s * (x % 3))  # not in order
        return x * x


@dataclass(frozen=True)
class Deadly:
    """Squares, but dies of one number until its file is there, or always without a file."""

    number: int
    once: Path | None

    def __call__(self) -> Callable[[int], int]:
        return self._square

    def _square(self, x: int) -> int:
        if x == self.number and (self.once is None or not self.once.exists()):
            if self.once is not None:
                self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x * x


class OddError(ValueError):
    """An error that pickle cannot make again."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"{number}: {text}")


@dataclass(frozen=True)
class Failing:
    """Fails on one number, with an error of a kind."""

    number: int
    kind: str

    def __call__(self) -> Callable[[int], int]:
        if self.kind == "ready":
            raise CalibrationError("nothing to get ready with")
        return self._square

    def _square(self, x: int) -> int:
        if x != self.number:
            return x * x
        if self.kind == "odd":
            raise OddError(x, "is odd")
        raise ValueError("wrong") if self.kind == "value" else CalibrationError("unusable")
