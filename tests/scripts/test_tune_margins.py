from __future__ import annotations

from scripts._tables import head, line
from scripts.tune_margins import margins

NAMES = ("model", "reached: dB", "predicted", "checked: dB", "timed")


def test_margins_are_quantiles_of_differences_over_the_rows() -> None:
    rows = [
        line("a", "36.0", "0.50", "35.5", "0.60 (0.55..0.65)"),
        line("b", "31.0", "0.50", "30.5", "0.60 (0.55..0.65)"),
        line("in float", "inf", "0.50", "inf", "0.60 (0.55..0.65)"),  # nothing to lose
    ]
    found = list(margins("\n".join([head(*NAMES), *rows])))
    assert found[1:] == [
        line("apart, dB", 2, "0.500", "0.500", "0.500"),
        line("interval, of float's time", 3, "0.050", "0.050", "0.050"),
        line("predicted", 3, "0.100", "0.100", "0.100"),
    ]
