from __future__ import annotations

import dataclasses

from benchmarks.architectures import (
    Figures,
    behind_float_and_peer,
    behind_results,
    rows,
)
from benchmarks.harness.results import Results, Run
from benchmarks.harness.table import Table
from scripts._timing import Ratio

FAST, EVEN, SLOW = Ratio(0.5, 0.4, 0.6), Ratio(1.0, 0.9, 1.1), Ratio(1.2, 1.1, 1.3)
ROW = Figures(
    "net",
    ratio={"x86-vnni": FAST, "speed": EVEN, "quantize_static": EVEN},
    sqnr_db={"x86-vnni": [30.0], "speed": [float("inf")], "quantize_static": [31.0]},
    nodes={"x86-vnni": (3, 1)},
    size={"speed": 0.25},
)
TABLE = Table("static", {"architecture": "", "dB: x86-vnni": ".1f"})


def before(db: float | str) -> Results:
    results = Results()
    results.add(Run("a machine", {}), TABLE.row("net", db))
    results.add(Run("a machine", {}), TABLE.row("other", 50.0))
    return results


def test_more_decibels_at_less_speed_are_not_ahead() -> None:
    assert not list(behind_float_and_peer(ROW))


def test_more_decibels_of_the_peer_at_the_same_speed_are_told() -> None:
    row = dataclasses.replace(ROW, ratio={**ROW.ratio, "quantize_static": FAST})
    assert list(behind_float_and_peer(row)) == [
        "net, x86-vnni: 30.0 dB at 0.50 (0.40..0.60) of float's time; "
        "quantize_static has 31.0 dB at 0.50 (0.40..0.60)"
    ]


def test_a_file_that_is_slower_than_float_is_told() -> None:
    row = dataclasses.replace(ROW, ratio={**ROW.ratio, "speed": SLOW})
    assert list(behind_float_and_peer(row)) == ["net, speed: 1.20 (1.10..1.30) of float's time"]


def test_a_loss_against_earlier_results_is_told_from_a_third_of_a_decibel_on() -> None:
    assert not list(behind_results(ROW, before(30.2)))
    lost = dataclasses.replace(ROW, sqnr_db={**ROW.sqnr_db, "x86-vnni": [29.8]})
    told = ["net, x86-vnni: 29.8 dB; 30.2 dB before"]
    assert list(behind_results(lost, before(30.2))) == told
    assert list(behind_results(ROW, before("float")))


def test_speed_is_above_one_where_a_file_is_faster_and_what_is_not_there_fails() -> None:
    static, dynamic = rows(ROW)
    assert static.cells[:4] == ("net", 2.0, "fails", 1.0)
    assert dynamic.cells[4] == ["float"]  # nothing was quantized
