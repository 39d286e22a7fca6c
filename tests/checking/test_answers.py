from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

import onnxq
from onnxq.checking.answers import RecognizedAnswers
from onnxq.checking.side_by_side import Pair
from scripts._corpus.blobs import detector, pictures

if TYPE_CHECKING:
    from onnxq.quantized.output_verdict import Answers

RNG = np.random.default_rng(0)


def found(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[Answers, ...]:
    answers = RecognizedAnswers()
    answers.update({"y": x.astype(np.float32)}, {"y": y.astype(np.float32)})
    return answers.found


def softmax(x: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    powers = np.exp(x)
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def test_the_verdict_on_a_detector_says_its_boxes_beside_the_decibels() -> None:
    made = onnxq.quantize(detector(), {"x": pictures(32)}, target="x86-vnni")
    assert made.verdict is not None
    (boxes,) = made.verdict.answers
    assert (boxes.kind, boxes.figure) == ("boxes", "F1")
    assert boxes.count > 0
    assert f"  boxes: F1 {boxes.value:.3f} beside float's {boxes.count} boxes ('output0' (" in str(
        made.verdict
    )


def test_masks_and_rows_are_recognized_by_their_sums() -> None:
    x = RNG.normal(size=(2, 4, 8, 8)) * 3
    (masks,) = found(softmax(x, 1), softmax(x + RNG.normal(size=x.shape), 1))
    assert (masks.kind, masks.count) == ("masks", 2 * 8 * 8)
    assert 0.3 < masks.value < 1
    x = RNG.normal(size=(2, 50, 9))
    (rows,) = found(softmax(x, 2), softmax(x, 2))
    assert (rows.kind, rows.value, rows.count) == ("rows", 1.0, 100)


@pytest.mark.parametrize(
    "x",
    [
        RNG.normal(size=(8, 10)),
        RNG.normal(size=(2, 50, 32)),
        np.maximum(RNG.normal(size=(2, 50, 32)), 0) * 5,
        RNG.normal(size=(2, 21, 16, 16)),
        RNG.uniform(0, 1, (2, 3, 16, 16)),
        RNG.uniform(0, 1, (2, 1, 16, 16)),
        softmax(RNG.normal(size=(2, 4, 16, 16)), 3),
        RNG.uniform(0, 1, (2, 100)),
        np.zeros((2, 50, 32)),
        np.full((2, 50, 32), np.nan),
        RNG.normal(size=()),
        RNG.normal(size=(0, 7)),
        RNG.normal(size=(1, 2, 3, 4, 5)),
    ],
    ids=[
        *("logits", "sequence", "features", "logits of pixels", "picture", "grey picture"),
        *("attention", "marks", "zeros", "NaN", "a number", "no row", "five axes"),
    ],
)
def test_what_may_be_something_else_is_not_called_an_answer(x: npt.NDArray[Any]) -> None:
    assert found(x, x) == ()


def test_rows_of_probabilities_have_a_divergence() -> None:
    p = softmax(RNG.normal(size=(64, 10)), 1)
    q = softmax(np.log(p) + 0.1 * RNG.normal(size=p.shape), 1)
    sums = Pair("y", "y", "y", None).compared(p, q)
    expected = (p * np.log2(p / q)).sum(1).mean()
    assert sums.divergence.bits == pytest.approx(expected, rel=0.05)
    assert Pair("y", "y", "y", None).compared(np.log(p), np.log(q)).divergence.bits is None
