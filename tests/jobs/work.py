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


class Foreign:
    """A result that only its worker can read: elsewhere its class is missing."""

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _missing_here, ()


def _missing_here() -> object:
    raise AttributeError("module 'onnxq' has no attribute 'Agreement'")


@dataclass(frozen=True)
class MakingForeign:
    """Squares, but for one number, whose result is Foreign."""

    number: int

    def __call__(self) -> Callable[[int], object]:
        return self._square

    def _square(self, x: int) -> object:
        return Foreign() if x == self.number else x * x


@dataclass(frozen=True)
class MakingGenerator:
    """Gives what pickle does not take."""

    def __call__(self) -> Callable[[int], object]:
        return self._endless

    def _endless(self, x: int) -> object:
        return (y for y in (x,))
