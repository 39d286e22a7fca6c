from __future__ import annotations

import math

import pytest

from onnxq.tuning.scoring.score import Score, db_text


def test_the_worst_output_counts() -> None:
    assert Score(1.0, {"a": 30.0, "b": 20.0, "c": math.inf}, 10).worst_db == 20.0


def test_an_output_that_cannot_be_compared_is_the_worst() -> None:
    assert Score(1.0, {"a": 30.0, "b": math.nan}, 10).worst_db == -math.inf


def test_a_model_without_outputs_of_floats_has_no_worst_one() -> None:
    assert Score(1.0, {}, 10).worst_db == math.inf


def test_a_score_survives_its_file_form_with_infinite_numbers() -> None:
    score = Score(math.inf, {"a": math.inf, "b": 12.5}, 10, 0.75)
    assert Score.from_dict(score.to_dict()) == score


def test_decibels_for_people_are_words_where_they_are_no_numbers() -> None:
    texts = [db_text(db) for db in (12.34, math.inf, -math.inf, math.nan)]
    assert texts == ["12.3", "exact", "lost", "-"]


def test_a_score_reads_as_a_line() -> None:
    line = "metric 0.912, 20.0 dB, 1.50 MB, 0.50 of float's time"
    assert str(Score(0.912, {"a": 20.0}, 1_500_000, 0.5)) == line


def test_whole_runs_keep_a_bound_that_their_interval_reaches() -> None:
    score = Score(1.0, {"y": 30.0}, 10, 1.2)
    assert score.time_beyond(1.0) == pytest.approx(0.2)
    assert score.timed(1.02, (0.99, 1.04)).time_beyond(1.0) == 0.0
    assert score.timed(1.02, (1.01, 1.04)).time_beyond(1.0) == pytest.approx(0.02)
    assert score.timed(1.10, (0.90, 1.30)).time_beyond(1.0) == pytest.approx(0.07)
    assert Score(1.0, {}, 10).time_beyond(1.0) == math.inf


def test_what_was_predicted_stays_beside_whole_runs() -> None:
    again = Score(1.0, {}, 10, 0.5).timed(0.6, (0.5, 0.7)).timed(0.7, (0.6, 0.8))
    assert (again.time_ratio, again.predicted_time) == (0.7, 0.5)
