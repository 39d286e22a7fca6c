from __future__ import annotations

from onnxq.operator import NodeForm
from onnxq.times.model_times import ChangeTime, NodeTimes, Times

TIMES = Times(
    "somewhere",
    {"x": (1, 3)},
    {
        "conv": NodeTimes({"float": 100.0, "integer": 40.0}, {"integer": 5.0}),
        "relu": NodeTimes({"float": 0.0, "integer": 0.0}),
        "norm": NodeTimes({"float": 30.0}),
    },
    {"quantize": ChangeTime(100.0, 0.5)},
    {"run": 20.0},
    150.0,
)


def test_times_survive_their_file_form() -> None:
    assert Times.from_dict(TIMES.to_dict()) == TIMES


def test_a_group_has_the_times_of_its_nodes_in_every_form_that_was_measured() -> None:
    found = TIMES.by_form(("conv", "relu", "norm"))
    assert found[NodeForm.FLOAT] == 130.0
    assert found[NodeForm.INTEGER] == 70.0  # a norm without an integer form stays as it is
    assert NodeForm.DYNAMIC not in found


def test_stored_and_wide_nodes_run_the_float_kernel() -> None:
    assert TIMES.of(("conv",), NodeForm.STORED) == TIMES.of(("conv",), NodeForm.WIDE) == 100.0


def test_nodes_that_were_not_measured_have_no_time() -> None:
    assert TIMES.of(("other",), NodeForm.FLOAT) is None


def test_a_change_takes_its_own_time_and_that_of_its_elements() -> None:
    assert TIMES.changes["quantize"].ns(1000) == 600.0
