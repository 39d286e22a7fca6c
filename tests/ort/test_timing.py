from __future__ import annotations

from functools import partial

from onnxq.ort.turns import Schedule, taking_turns


def test_times_are_taken_in_turns_and_every_second_round_goes_backwards() -> None:
    calls: list[str] = []
    runs = [partial(calls.append, name) for name in "ab"]
    found = taking_turns(runs, Schedule(rounds=3, repeats=(1, 2)))
    assert "".join(calls) == "bbba" + "abbb" + "bbba"  # the first of several is not counted
    assert [len(seconds) for seconds in found] == [3, 3]
