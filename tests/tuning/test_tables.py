from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import OutputError
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.report.console import open_console
from onnxq.times.model_times import NodeTimes, Times
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.quantization_groups import NodeGroup
from onnxq.tuning.sensitivity import GroupCost, Sensitivity
from onnxq.tuning.tables import (
    CHANGES_WIDTH,
    MOST_ROWS,
    Milestone,
    front_rows,
    print_group_times,
    print_revert,
    print_sensitivity,
    print_steps,
    save_milestones,
    score_words,
)

if TYPE_CHECKING:
    from pathlib import Path

POINT = Milestone(("float: Conv, a",), Score(30.0, {"y": 30.0}, 9, 0.5), default_qconfig_mapping())


def test_every_point_has_a_file_that_gives_its_qconfig(tmp_path: Path) -> None:
    (file,) = save_milestones(tmp_path / "front", [POINT])
    assert QConfigMapping.from_yaml(file.read_text("utf-8")) == POINT.qconfig
    (shown,) = json.loads((tmp_path / "front" / "front.json").read_text("utf-8"))
    assert shown["file"] == "point-1.yaml"
    assert shown["changes"] == ["float: Conv, a"]


def test_points_of_an_earlier_front_are_removed_and_no_other_file(tmp_path: Path) -> None:
    save_milestones(tmp_path, [POINT] * 3)
    mine = tmp_path / "point-of-mine.yaml"
    mine.write_text("")
    save_milestones(tmp_path, [POINT])
    assert sorted(path.name for path in tmp_path.glob("point*")) == ["point-1.yaml", mine.name]


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        save_milestones(tmp_path / "file", [POINT])
    with pytest.raises(OutputError, match="front' cannot be made"):
        save_milestones(tmp_path / "missing" / "front", [POINT])


SCORE = Score(0.87654, {"y": 30.0}, 1000, 0.5)
CHOSEN = default_qconfig_mapping()


def test_changes_beyond_the_width_are_counted() -> None:
    moves = tuple(f"float: Conv, /layer{i}" for i in range(20))
    file = io.StringIO()
    print_steps(open_console(file), [Milestone(moves, SCORE, CHOSEN)], 4)
    (row,) = [text for text in file.getvalue().splitlines() if "/layer0" in text]
    assert "more" in row
    assert len(row.split("0.8765")[0]) <= CHANGES_WIDTH + len(" and 20 more  ")


def test_the_point_that_was_chosen_is_marked() -> None:
    other = CHOSEN.set_node("a", None)
    front = [Milestone((), SCORE, other), Milestone((), SCORE, CHOSEN)]
    assert [row[-1] for row in front_rows(front, CHOSEN, 2)] == ["", "chosen"]
    assert next(front_rows(front, CHOSEN, 2))[:2] == ("point-1", "0.88")


def test_a_measured_time_has_its_interval_and_a_predicted_one_a_mark() -> None:
    assert "~0.500 of float's time" in score_words(SCORE, math.inf, 4)
    assert "metric" not in score_words(SCORE, math.inf, 4)  # it is the decibels again
    assert "equal to float, " in score_words(replace(SCORE, sqnr_db={"y": math.inf}), 1.0, 4)
    timed = score_words(SCORE.timed(0.6, (0.55, 0.65)), 0.9, 4)
    assert "metric 0.8765 (float 0.9000)" in timed
    assert "0.600 (0.550 to 0.650) of float's time" in timed


COST = GroupCost("Conv, a", math.inf, {"y": 30.0})
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
    print_sensitivity(open_console(file), Sensitivity(costs, 1.0))
    return file.getvalue().splitlines()


def times(groups: list[NodeGroup]) -> list[list[str]]:
    file = io.StringIO()
    print_group_times(open_console(file), TIMES, groups)
    return [line.split() for line in file.getvalue().splitlines()]


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
    assert sum("dB alone: SQNR" in line for line in sensitivity(COST)) == 1
    assert not any("dB alone: SQNR" in line for line in sensitivity())
    words = " ".join(times(GROUPS)[-2] + times(GROUPS)[-1])
    assert "dynamic_int8: ranges found in each run; -: not measured in that precision" in words
    assert "float result:" not in words


def revert(nodes: tuple[str, ...]) -> str:
    file = io.StringIO()
    costs = (replace(COST, group="a part of a"), replace(COST, group="a"), COST)
    dearest = Sensitivity(costs, 1.0)
    print_revert(open_console(file), dearest, [NodeGroup("a", nodes), *GROUPS])
    return file.getvalue()


def test_options_that_leave_the_dearest_group_in_float_are_there_to_be_copied() -> None:
    assert "  --exclude conv --exclude '/my log'\n" in revert(("conv", "/my log"))
    assert revert(tuple(map(str, range(40)))).startswith("a has 40 nodes: --json")
    file = io.StringIO()
    print_revert(open_console(file), Sensitivity((), 1.0), GROUPS)
    assert file.getvalue() == ""
