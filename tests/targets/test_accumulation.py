from __future__ import annotations

import numpy as np

from onnxq.targets.accumulation import EXACT, Accumulator, Overflows, SaturationMode, joined


def overflows(*entries: tuple[int, int, int, int], change: int = 1, changed: int = 1) -> Overflows:
    """Entries are (first, second, channel, count)."""
    first, second, channel, count = np.array(entries, np.int64).T
    return Overflows(first, second, channel, count, change, changed)


def test_exact_is_what_nobody_asked_for() -> None:
    assert EXACT.exact
    assert not Accumulator(SaturationMode.WRAPS).exact


def test_parts_are_joined_by_pair_and_channel() -> None:
    parts = [
        overflows((0, 1, 3, 5), (2, 3, 0, 7), change=40, changed=12),
        overflows((2, 3, 0, 1), (2, 3, 1, 2), change=9, changed=3),
    ]
    found = joined(parts)
    assert found is not None
    entries = zip(found.channel, found.first, found.second, found.count, strict=True)
    assert [tuple(map(int, entry)) for entry in entries] == [
        (0, 2, 3, 8),
        (1, 2, 3, 2),
        (3, 0, 1, 5),
    ]
    assert (found.change, found.changed) == (40, 15)


def test_nothing_joined_is_nothing() -> None:
    assert joined([]) is None
