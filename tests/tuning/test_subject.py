from __future__ import annotations

from dataclasses import replace

from onnxq import costs
from onnxq.tuning.subject import Settings


def test_settings_with_other_times_have_other_words() -> None:
    """A journal tells by them whether its scores are of the same settings."""
    table = costs.of("x86-vnni")
    assert table is not None
    other = replace(table, timings=table.timings[1:])
    words = {str(Settings(costs=each)) for each in (None, table, other)}
    assert len(words) == 3
    assert str(Settings(costs=replace(table))) in words
