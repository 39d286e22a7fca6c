from __future__ import annotations

import dataclasses

from benchmarks.architectures import Row, behind_float_and_peer, behind_page, tables
from scripts._tables import head, line
from scripts._timing import Ratio

FAST, EVEN, SLOW = Ratio(0.5, 0.4, 0.6), Ratio(1.0, 0.9, 1.1), Ratio(1.2, 1.1, 1.3)
ROW = Row(
    "net",
    ratio={"x86-vnni": FAST, "speed": EVEN, "quantize_static": EVEN},
    sqnr_db={"x86-vnni": [30.0], "speed": [float("inf")], "quantize_static": [31.0]},
    nodes={"x86-vnni": (3, 1)},
    size={"speed": 0.25},
)
PAGE = f"{head('architecture', 'dB: x86-vnni')}\n{line('net', '30.2')}\n{line('other', '50.0')}\n"


def test_a_row_comes_back_from_its_file() -> None:
    assert Row.from_json(ROW.to_json()) == ROW


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


def test_a_loss_against_the_page_is_told_from_a_third_of_a_decibel_on() -> None:
    assert not list(behind_page(ROW, PAGE))
    lost = dataclasses.replace(ROW, sqnr_db={**ROW.sqnr_db, "x86-vnni": [29.8]})
    assert list(behind_page(lost, PAGE)) == ["net, x86-vnni: 29.8 dB; 30.2 dB before"]
    assert list(behind_page(ROW, PAGE.replace("30.2", "float")))


def test_the_page_s_speed_is_above_one_where_a_file_is_faster() -> None:
    assert "| net | 2.00 |" in tables([ROW])
