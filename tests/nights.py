"""Cases of long tests, spread over nights: each night runs a part of them, N nights in a row all.

`@pytest.mark.nightly(nights=N)` says that an Nth of a function's cases runs each night. The part
follows from the night's number, which `scripts/nightly` takes from the commit's date, so that a
commit has one table. Without a number (files named by hand) all cases run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.cpu_seconds import function_of

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "ONNXQ_NIGHT"
"""Environment variable of the night's number; absent or empty: all cases."""


def tonight() -> int | None:
    """The night's number; None: all cases run."""
    number = os.environ.get(VARIABLE)
    return int(number) if number else None


def left_for_other_nights(nights: Mapping[str, int], night: int | None) -> set[str]:
    """Cases that do not run in that night; of each function one runs at least.

    Args:
        nights: node id of a case -> over how many nights the cases of its function are spread.
        night: its number; None: all cases run.
    """
    if night is None:
        return set()
    cases: dict[str, list[str]] = defaultdict(list)
    for nodeid in sorted(nights):
        cases[function_of(nodeid)].append(nodeid)
    left: set[str] = set()
    for found in cases.values():
        parts = min(nights[found[0]], len(found))
        left.update(name for i, name in enumerate(found) if i % parts != night % parts)
    return left
