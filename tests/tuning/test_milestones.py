from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import OutputError
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.report.console import open_console
from onnxq.tuning.milestones import (
    CHANGES_WIDTH,
    Milestone,
    front_rows,
    print_steps,
    save_milestones,
    score_words,
)
from onnxq.tuning.scoring.score import Score

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
    timed = score_words(SCORE.timed(0.6, (0.55, 0.65)), 0.9, 4)
    assert "metric 0.8765 (float 0.9000)" in timed
    assert "0.600 (0.550 to 0.650) of float's time" in timed
