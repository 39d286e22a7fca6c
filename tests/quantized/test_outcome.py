"""Sentences on what PTQ algorithms did."""

from __future__ import annotations

from onnxq.quantized.outcome import Outcome, summaries


def test_outputs_move_only_where_something_is_kept() -> None:
    places = (Outcome("auto", "a", False, 40.0, 39.0), Outcome("auto", "b", True, 40.0, 41.0))
    whole = Outcome("auto", "", True, 53.8, 54.5)
    (said,) = summaries((*places, whole))
    assert said.startswith("PTQ algorithm 'auto': kept at 1 of 2 places; outputs 53.8 -> 54.5 dB")
    (said,) = summaries((places[0], whole))
    assert said.startswith("PTQ algorithm 'auto': kept at 0 of 1 places; outputs would go 53.8 ->")
