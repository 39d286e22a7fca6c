from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import OutputError
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.tuning.milestone import Milestone, save_milestones
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
