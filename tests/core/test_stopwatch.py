from __future__ import annotations

import time

from onnxq.core.stopwatch import Stopwatch


def test_it_counts_cpu_time_and_no_sleep() -> None:
    watch = Stopwatch()
    time.sleep(0.2)
    assert watch.spent_s < 0.2
    sum(range(100_000))
    assert watch.spent_s > 0
