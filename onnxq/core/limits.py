"""Bounds on the time and memory that a model may take when it runs for the first time.

with onnxq.limits(seconds=600, memory_bytes=8 << 30):
    onnxq.quantize("large.onnx", samples)
"""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from onnxq.core.memory import available_bytes
from onnxq.errors import QConfigError

DEFAULT_SECONDS = 60.0
GB = 1e9
REMEDY = (
    "Raise the bound if it needs more: --run-seconds, --run-memory; in Python onnxq.limits(...)."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one opening or first run of a model.

    Attributes:
        seconds: of a model whose weights and inputs are small; each GB of them adds as much.
        memory_bytes: that it may take; None: as much as is free.
    """

    seconds: float = DEFAULT_SECONDS
    memory_bytes: int | None = None

    def seconds_for(self, size_bytes: int) -> float:
        """Seconds for a model with its inputs of so many bytes: seconds * (1 + GB)."""
        return self.seconds * (1 + size_bytes / GB)

    @property
    def bytes_now(self) -> int | None:
        """Bytes that a model may take now; None: nobody knows how much is free."""
        return available_bytes() if self.memory_bytes is None else self.memory_bytes


_current: ContextVar[Limits] = ContextVar("onnxq.limits", default=Limits())  # noqa: B039  # it is frozen


def current_limits() -> Limits:
    """The bounds that hold here."""
    return _current.get()


@contextlib.contextmanager
def limits(seconds: float = DEFAULT_SECONDS, memory_bytes: int | None = None) -> Iterator[Limits]:
    """Bounds each opening and first run of a model until the `with` ends.

    Args:
        seconds: for a small model, above 0; each GB of weights and inputs adds as much.
        memory_bytes: from 1; None: as much as is free. Windows and macOS do not enforce it.
    Raises:
        QConfigError: a bound that is no number, or too small.
    """
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        raise QConfigError(f"seconds: got {seconds!r}; wanted a number above 0.")
    is_whole = isinstance(memory_bytes, int) and not isinstance(memory_bytes, bool)
    if memory_bytes is not None and (not is_whole or memory_bytes < 1):
        raise QConfigError(f"memory_bytes: got {memory_bytes!r}; wanted a whole number from 1.")
    token = _current.set(Limits(seconds, memory_bytes))
    try:
        yield _current.get()
    finally:
        _current.reset(token)
