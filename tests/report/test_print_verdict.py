from __future__ import annotations

import pytest

from onnxq.quantized.output_verdict import Answers, OutputVerdict
from onnxq.quantized.verdict import InputSource, Verdict
from onnxq.report.print_verdict import Line, fitting, next_goal, next_lines, verdict_lines

LAYOUT = "'output0' (1, 22, 2100): axis 1, format xywh, objectness no, scores probabilities"


def verdict_of(*answers: Answers, sqnr_db: float = 37.4) -> Verdict:
    return Verdict(
        input_source=InputSource.UNSEEN,
        samples=32,
        samples_in_all=32,
        outputs=(OutputVerdict("output0", sqnr_db),),
        collapse=None,
        speedup=1.87,
        float_bytes=100,
        quantized_bytes=27,
        integer_nodes=220,
        float_nodes=103,
        answers=answers,
    )


def test_figures_of_boxes_are_said_where_rows_are_few() -> None:
    verdict = verdict_of(Answers("boxes", "F1", 0.85, 22, LAYOUT))
    more = [Line("what comes behind", 1)] * 12
    said = [line.text for line in fitting([*verdict_lines(verdict), *more])]
    assert "    boxes: F1 0.850 beside float's 22 boxes (few)" in said


@pytest.mark.parametrize(
    ("answers", "goal"),
    [
        ((), ["--min-sqnr", "40"]),
        ((Answers("rows", "same class", 0.9, 22, ""),), ["--min-sqnr", "40"]),
        ((Answers("boxes", "F1", 0.85, 22, LAYOUT),), ["--metric", "boxes", "--max-drop", "0.08"]),
        ((Answers("boxes", "F1", 1.0, 22, LAYOUT),), []),
    ],
)
def test_a_goal_beyond_what_was_reached_is_in_what_the_outputs_say(
    answers: tuple[Answers, ...], goal: list[str]
) -> None:
    assert next_goal(verdict_of(*answers)) == goal


@pytest.mark.parametrize(
    ("sqnr_db", "goal"), [(float("inf"), []), (40.0, []), (float("nan"), ["20"])]
)
def test_a_goal_is_suggested_below_an_error_of_a_hundredth(sqnr_db: float, goal: list[str]) -> None:
    assert next_goal(verdict_of(sqnr_db=sqnr_db)) == ["--min-sqnr", *goal][: 2 * len(goal)]


def test_a_command_says_what_it_is_for_where_that_takes_no_row_more() -> None:
    def shown(length: int) -> Line:
        (line,) = next_lines(["x" * length + "   # speed, in pairs of runs"])
        return line

    assert [shown(length).rows for length in (40, 60, 100, 150)] == [1, 1, 2, 2]
    assert ["#" in shown(length).text for length in (40, 60, 100, 150)] == [
        True,
        False,
        True,
        False,
    ]
