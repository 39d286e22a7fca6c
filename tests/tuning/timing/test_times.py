from __future__ import annotations

from onnxq.operator import Precision
from onnxq.tuning.timing.node_group import NodeGroup
from onnxq.tuning.timing.times import ChangeTime, NodeTimes, Times

TIMES = Times(
    "somewhere",
    {"x": (1, 3)},
    {
        "conv": NodeTimes({"float": 100.0, "int8": 40.0}, {"int8": 5.0}),
        "relu": NodeTimes({"float": 0.0, "int8": 0.0}),
        "norm": NodeTimes({"float": 30.0}),
    },
    {"quantize": ChangeTime(100.0, 0.5)},
    {"run": 20.0},
    150.0,
)


def test_times_survive_their_file_form() -> None:
    assert Times.from_dict(TIMES.to_dict()) == TIMES


def test_a_group_has_the_times_of_its_nodes_in_every_form_that_was_measured() -> None:
    found = TIMES.of_group(NodeGroup("g", ("conv", "relu", "norm")))
    assert found[Precision.FLOAT] == 130.0
    assert found[Precision.INT8] == 70.0  # a norm without an integer form stays as it is
    assert Precision.DYNAMIC_INT8 not in found


def test_stored_and_wide_nodes_run_the_float_kernel() -> None:
    assert (
        TIMES.of(("conv",), Precision.WEIGHT_ONLY)
        == TIMES.of(("conv",), Precision.FLOAT_BETWEEN_QDQ)
        == 100.0
    )


def test_nodes_that_were_not_measured_have_no_time() -> None:
    assert TIMES.of(("other",), Precision.FLOAT) is None


def test_a_change_takes_its_own_time_and_that_of_its_elements() -> None:
    assert TIMES.changes["quantize"].ns(1000) == 600.0
