from __future__ import annotations

import io
import math

from onnxq.qconfig import default_qconfig_mapping
from onnxq.report.console import open_console
from onnxq.tuning.milestone import Milestone
from onnxq.tuning.milestone_tables import CHANGES_WIDTH, front_rows, print_steps, score_words
from onnxq.tuning.scoring.score import Score

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
