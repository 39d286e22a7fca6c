from __future__ import annotations

import io
import math
from dataclasses import replace

from onnxq.report.console import open_console
from onnxq.times.model_times import NodeTimes, Times
from onnxq.tuning.scoring.node_group import NodeGroup
from onnxq.tuning.sensitivity.group_tables import (
    MOST_ROWS,
    print_group_times,
    print_revert,
    print_sensitivity,
)
from onnxq.tuning.sensitivity.sensitivity import GroupCost, Sensitivity

COST = GroupCost("Conv, a", math.inf, {"y": 30.0}, 31.0, math.nan, 4)
TIMES = Times(
    "here",
    {},
    {
        "conv": NodeTimes({"float": 50_000.0, "int8": 20_000.0}),
        "gelu": NodeTimes({"float": 30_000.0}),
        "gemm": NodeTimes({"float": 100_000.0, "dynamic_int8": 25_000.0}),
    },
    {},
    {},
    200_000.0,
)
GROUPS = [NodeGroup("Conv + Gelu", ("conv", "gelu")), NodeGroup("Gemm", ("gemm",))]


def sensitivity(*costs: GroupCost) -> list[str]:
    file = io.StringIO()
    print_sensitivity(open_console(file), Sensitivity(costs, 0, agreed=True, runs=1.0))
    return file.getvalue().splitlines()


def times(groups: list[NodeGroup]) -> list[list[str]]:
    file = io.StringIO()
    print_group_times(open_console(file), TIMES, groups)
    return [line.split() for line in file.getvalue().splitlines()]


def test_error_that_does_not_show_is_a_dash() -> None:
    row = next(line for line in sensitivity(COST) if line.startswith("Conv, a"))
    assert row.split()[-3:] == ["30.0", "31.0", "-"]


def test_count_of_further_groups_stands_apart_from_the_next_table() -> None:
    lines = sensitivity(*(replace(COST, group=f"g{i}") for i in range(MOST_ROWS + 2)))
    at = lines.index("and 2 more")
    assert lines[at + 1] == ""


def test_the_slowest_group_comes_first_with_its_share_and_a_dash_for_forms_it_lacks() -> None:
    rows = times(GROUPS)
    assert rows[2] == ["Gemm", "100.0", "-", "25.0", "50%"]
    assert rows[3] == ["Conv", "+", "Gelu", "80.0", "50.0", "-", "40%"]  # the Gelu stays in float


def test_forms_that_nothing_was_measured_in_have_no_column() -> None:
    assert times(GROUPS)[1][-4:] == ["dynamic_int8", "of", "float's", "run"]


def test_a_group_without_times_has_no_row() -> None:
    assert len(times([*GROUPS, NodeGroup("unknown", ("x",))])) == len(times(GROUPS))


def test_words_of_the_tables_are_explained_under_them() -> None:
    assert sum("local: its error" in line for line in sensitivity(COST)) == 1
    assert not any("local: its error" in line for line in sensitivity())
    words = " ".join(times(GROUPS)[-2] + times(GROUPS)[-1])
    assert "dynamic_int8: ranges found in each run; -: not in that precision" in words
    assert "float result:" not in words


def revert(nodes: tuple[str, ...]) -> str:
    file = io.StringIO()
    costs = (replace(COST, group="a part of a"), replace(COST, group="a"), COST)
    dearest = Sensitivity(costs, 0, agreed=True, runs=1.0)
    print_revert(open_console(file), dearest, [NodeGroup("a", nodes), *GROUPS])
    return file.getvalue()


def test_options_that_leave_the_dearest_group_in_float_are_there_to_be_copied() -> None:
    assert "  --exclude conv --exclude '/my log'\n" in revert(("conv", "/my log"))
    assert revert(tuple(map(str, range(40)))).startswith("a has 40 nodes: --json")
    file = io.StringIO()
    print_revert(open_console(file), Sensitivity((), 0, agreed=True, runs=1.0), GROUPS)
    assert file.getvalue() == ""
