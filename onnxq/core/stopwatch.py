"""CPU time of this process since a moment."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """CPU time since it was made.

    Attributes:
        begun_s: CPU time of the process at that moment, in seconds.
    """

    begun_s: float = field(default_factory=time.process_time)

    @property
    def spent_s(self) -> float:
        """CPU seconds since then."""
        return time.process_time() - self.begun_s
