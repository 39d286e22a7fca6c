"""A change is withdrawn for a loss at the outputs, not for what few samples happen to show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.samples import Batches
from onnxq.weights.judgement import ENOUGH_SAMPLES, Judgement, judgement_of, left_over, thinned

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals
    from onnxq.samples.inputs import Batch


def judged(lost: list[float]) -> Judgement:
    before = np.full(len(lost), 10.0)
    return Judgement(np.full(len(lost), 1000.0), before, before + np.array(lost))


def test_a_loss_within_its_standard_error_is_none() -> None:
    assert not judged([5.0, -4.0, 3.0, -3.0]).is_loss
    assert judged([5.0, 4.0, 3.0, -3.0]).is_loss
    assert judged([0.1, 0.1, 0.1, 0.1]).is_loss  # small, but each sample says so
    assert not judged([-1.0, -1.0, 0.0, 0.0]).is_loss


def shares(gained: Reals) -> Judgement:
    """A judgement of samples whose (before - after) / (before + after) are these."""
    before = np.full(gained.size, 10.0)
    return Judgement(np.full(gained.size, 1000.0), before, before * (1 - gained) / (1 + gained))


def test_a_gain_that_chance_explains_is_none() -> None:
    assert not judged([-5.0, 4.0, -3.0, 3.0]).is_gain(1)
    assert not judged([-5.0, -4.0, -3.0, 3.0]).is_gain(1)  # above its standard error
    assert judged([-5.0, -4.0, -3.0, -4.0]).is_gain(1)
    assert not judged([0.0, 0.0]).is_gain(1)
    assert not judged([-10.0, -10.0]).is_loss


@pytest.mark.parametrize(
    ("samples", "tried", "least"),  # of Student's t, one-sided, at 5% and at a third of it
    [
        (2, 1, 6.314),
        (3, 1, 2.920),
        (1001, 1, 1.646),
        (2, 3, 19.08),
        (3, 3, 5.339),
        (1001, 3, 2.131),
    ],
)
def test_few_samples_and_the_best_of_several_models_have_to_agree_more(
    samples: int, tried: int, least: float
) -> None:
    spread = np.linspace(-0.01, 0.01, samples)
    error = spread.std(ddof=1) / np.sqrt(samples)
    assert not shares(spread + 0.99 * least * error).is_gain(tried)
    assert shares(spread + 1.01 * least * error).is_gain(tried)


def test_samples_with_large_errors_do_not_drown_what_all_others_say() -> None:
    """A gain of 0.6 dB where errors differ by factors of ten, and each model's by 1.4 dB."""
    rng = np.random.default_rng(0)

    def kept(gain_db: float, draws: int = 400) -> float:
        found = 0
        for _ in range(draws):
            local_db = rng.normal(0, 1.4, (2, 64))
            before, after = rng.lognormal(0, 1.2, 64) * 10 ** (local_db / 10)
            found += Judgement(np.ones(64), before, after * 10 ** (-gain_db / 10)).is_gain(1)
        return found / draws

    assert kept(0.6) > 0.65  # at 5% by the errors themselves: 0.44
    assert kept(0.0) < 0.08


def test_a_gain_in_most_samples_that_loses_in_all_together_is_none() -> None:
    before = np.array([1.0] * 15 + [100.0])
    assert not Judgement(np.ones(16), before, before * ([0.5] * 15 + [1.1])).is_gain(1)


def test_one_sample_decides_of_a_loss_alone_and_tells_no_gain() -> None:
    assert judged([0.1]).is_loss
    assert not judged([0.0]).is_loss
    assert not judged([-0.1]).is_gain(1)


def test_decibels_are_of_all_samples_together() -> None:
    found = Judgement(np.array([50.0, 50.0]), np.array([1.0, 0.0]), np.array([5.0, 5.0]))
    assert found.before_db == pytest.approx(20.0)
    assert found.after_db == pytest.approx(10.0)


def test_errors_of_all_outputs_count_sample_by_sample() -> None:
    wanted = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    outputs = [(wanted, wanted + 1, wanted), (wanted[:, 0], wanted[:, 0], wanted[:, 0] + 3)]
    found = judgement_of([(2, outputs)] * 2)
    assert found is not None
    assert found.before.tolist() == [2 / 60] * 4  # of 1 + 4 + 9 + 16, twice
    assert found.after.tolist() == [9 / 20] * 4  # of 1 + 9, twice
    assert found.signal.sum() == pytest.approx(2)


def test_an_output_of_few_small_numbers_counts_as_much_as_one_of_many() -> None:
    """Scores beside hidden states, whose squares are thousands of times as many."""
    states, scores = np.full((4, 1000), 10.0), np.ones((4, 2))
    noisy = scores + np.array([[0.1], [0.2], [0.1], [0.2]])
    found = judgement_of([(4, [(states, states * 1.01, states), (scores, scores, noisy)])])
    assert found is not None
    assert found.is_loss  # 1e-4 of the states' power less, 0.025 of the scores' more
    assert found.before_db == pytest.approx(43.01, abs=0.01)
    assert found.after_db == pytest.approx(19.03, abs=0.01)


@pytest.mark.parametrize("number", [0.0, math.nan, -math.inf])
def test_an_output_of_zeros_or_of_no_numbers_says_nothing(number: float) -> None:
    empty, ones = np.full((2, 3), number), np.ones((2, 3))
    found = judgement_of([(2, [(empty, empty + 1, empty), (ones, ones, ones + 1)])])
    assert found is not None
    assert found.before.tolist() == [0.0, 0.0]
    assert found.after.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_change_that_gives_no_numbers_is_a_loss(number: float, samples: int) -> None:
    ones = np.ones((samples, 3))
    found = judgement_of([(samples, [(ones, ones + 1, ones * number)])])
    assert found is not None
    assert found.is_loss
    assert not found.is_gain(1)


def test_an_output_that_is_not_by_samples_makes_the_batch_one() -> None:
    wanted, number = np.ones((2, 3), np.float32), np.array(2.0, np.float32)
    outputs = [(wanted, wanted + 1, wanted), (number, number, number + 1)]
    found = judgement_of([(2, outputs)] * 3)
    assert found is not None
    assert found.before.tolist() == [6 / 18] * 3
    assert found.after.tolist() == [1 / 12] * 3


def test_without_outputs_of_floats_there_is_nothing_to_judge() -> None:
    assert judgement_of([(2, [])]) is None


@pytest.mark.parametrize(
    ("count", "rows", "most", "left"),
    [(256, 1, 128, 128), (192, 1, 128, 128), (100, 8, 128, 16), (6, 64, 128, 4), (3, 64, 128, 3)],
)
def test_samples_are_thinned_evenly_to_so_many_rows(
    count: int, rows: int, most: int, left: int
) -> None:
    every = [{"x": np.full((rows, 1), i)} for i in range(count)]
    some = thinned(Batches("samples", count, lambda: iter(every)), most)
    kept = [int(batch["x"][0, 0]) for batch in some]
    assert some.count == len(kept) == left
    assert kept[0] == 0
    assert max(np.diff(kept)) - min(np.diff(kept)) <= 1


@pytest.mark.parametrize(("count", "most"), [(10, 4), (7, 7), (192, 128), (2000, 500)])
def test_what_is_left_over_is_what_is_not_looked_at(count: int, most: int) -> None:
    batches: list[Batch] = [{"x": np.full((1, 1), i, np.float32)} for i in range(count)]
    samples = Batches("these", count, lambda: iter(batches))
    looked_at, left = list(thinned(samples, most)), left_over(samples, most)
    numbers = [int(batch["x"][0, 0]) for batch in (*looked_at, *left)]
    assert len(set(numbers)) == len(numbers)
    assert len(left) == min(count - len(looked_at), ENOUGH_SAMPLES)
    if left:  # from the first samples to the last
        spread = [int(batch["x"][0, 0]) for batch in left]
        assert spread == sorted(spread)
        assert spread[0] < count / 2 < spread[-1]


def boxes_and_scores(rows: int) -> np.ndarray:
    random = np.random.default_rng(0)
    boxes, scores = random.uniform(0, 640, (rows, 4, 100)), random.uniform(0, 1, (rows, 3, 100))
    return np.concatenate([boxes, scores], axis=1).astype(np.float32)


def test_scores_beside_boxes_in_one_tensor_count_as_much() -> None:
    """Boxes gain what the whole is made of; scores lose what a detector is made of."""
    wanted = boxes_and_scores(8)
    before, after = wanted * 1.01, wanted * 1.001
    after[:, 4:] = wanted[:, 4:] * 1.2
    batches = [
        (2, [(w, b, a)])
        for w, b, a in zip(*(np.split(x, 4) for x in (wanted, before, after)), strict=True)
    ]
    found = judgement_of(batches)
    assert found is not None
    assert found.is_loss
    assert found.after_db == pytest.approx(10 * math.log10(2 / (0.2**2 + 1e-6)), abs=0.01)
    one = judgement_of([(7, [(wanted, before, after)])])  # of no such number of samples
    assert one is not None
    assert one.is_less


def test_scores_that_are_never_taken_count_where_a_change_makes_them_large() -> None:
    """Their own power is no unit, but an error beside it is one of the scores."""
    wanted = boxes_and_scores(8)
    wanted[:, 6] *= 0.01
    before, after = wanted * 1.01, wanted * 1.001
    after[:, 6] = 0.9
    found = judgement_of([(8, [(wanted, before, after)])])
    assert found is not None
    assert found.is_loss
