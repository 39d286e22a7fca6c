from __future__ import annotations

from onnxq.times import Change, costs_of
from onnxq.times import changed_time as module
from onnxq.times.changed_time import change_times, changes_of


def test_every_change_takes_longer_for_more_elements() -> None:
    found = change_times()
    assert set(found) == {change.value for change in Change}
    for each in found.values():
        assert 0 <= each.fixed_ns < each.ns(1_000_000)


def test_a_table_of_costs_gives_the_same_changes() -> None:
    table = costs_of("x86-vnni")
    assert table is not None
    found = changes_of(table)
    assert set(found) == {change.value for change in Change}
    estimate = table.change(Change.QUANTIZE, 200_704)
    assert estimate is not None
    assert abs(found["quantize"].ns(200_704) / estimate.ns - 1) < 0.01


def test_no_part_of_a_time_is_below_zero() -> None:
    assert module._line([10, 20], [5.0, 3.0]).per_element_ns == 0.0
    assert module._line([10, 20], [1.0, 30.0]).fixed_ns == 0.0
