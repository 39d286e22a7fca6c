"""Many Statistics merged as they come: in time linear in their number, in memory logarithmic."""

from collections.abc import Iterable

from onnxq.errors import CalibrationError
from onnxq.static.statistics import Statistics


class Merging:
    """Statistics that are added one after the other, as the digits of a binary counter.

    Those of n additions are held as one pile for each 1 in the binary form of n, each pile twice
    as large as the next one at least. A merge copies what both sides hold, and each addition is
    copied log2(n) times, not n times.
    """

    def __init__(self) -> None:
        self._piles: list[tuple[int, Statistics]] = []

    def add(self, statistics: Statistics) -> None:
        """Merges one more; which are merged first makes no difference.

        Raises:
            CalibrationError: as `Statistics.merge`.
        """
        size = 1
        while self._piles and self._piles[-1][0] <= size:
            others, pile = self._piles.pop()
            statistics, size = pile.merge(statistics), size + others
        self._piles.append((size, statistics))

    def merged(self) -> Statistics:
        """All of them, as if of one run; more may be added afterwards."""
        if not self._piles:
            raise CalibrationError("there are no statistics to merge; give at least one.")
        *others, (_, together) = self._piles
        for _, pile in reversed(others):
            together = pile.merge(together)
        return together


def merged(statistics: Iterable[Statistics]) -> Statistics:
    """All of them, as if of one run, whatever their order."""
    merging = Merging()
    for each in statistics:
        merging.add(each)
    return merging.merged()
