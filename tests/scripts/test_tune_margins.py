from __future__ import annotations

from benchmarks.harness.results import Stored
from scripts._tables import line
from scripts.tune_margins import margins


def test_margins_are_quantiles_of_differences_over_the_rows() -> None:
    time = [0.60, 0.55, 0.65]
    rows = [
        [0, "a", 36.0, 0.50, 35.5, time],
        [0, "b", 31.0, 0.50, 30.5, time],
        [0, "in float", "inf", 0.50, "inf", time],  # nothing to lose
    ]
    names = ("model", "reached: dB", "predicted", "checked: dB", "reached: time")
    found = list(margins(Stored(dict.fromkeys(names, ""), 1, rows)))
    assert found[1:] == [
        line("apart, dB", 2, "0.500", "0.500", "0.500"),
        line("interval, of float's time", 3, "0.050", "0.050", "0.050"),
        line("predicted", 3, "0.100", "0.100", "0.100"),
    ]
