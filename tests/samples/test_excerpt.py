from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxq.samples import InputSpec, open_samples
from onnxq.samples.excerpt import (
    ENOUGH,
    MOST_BATCHES,
    MOST_ROWS,
    SHARE,
    Excerpt,
    every_by_itself,
    rows_of,
)

DYNAMIC = (InputSpec("x", np.dtype(np.float32), ("n", 2)),)
STATIC = (InputSpec("x", np.dtype(np.float32), (4, 2)),)


def batch(number: int, rows: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.full((rows, 2), number, np.float32)}


def numbers(excerpt: Excerpt) -> list[int]:
    return [int(each["x"][0, 0]) for each in excerpt.chosen()]


@pytest.mark.parametrize("count", [1, 7, 16, 17, 100, 1000])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_about_one_sample_in_sixteen_is_kept_and_enough(count: int, rows: int) -> None:
    excerpt = Excerpt(DYNAMIC)
    for i in range(count):
        excerpt.offer(batch(i, rows))
    assert excerpt.samples == count * rows
    chosen = sum(map(rows_of, excerpt.chosen()))
    seen = count * rows
    limit = min(max(min(seen, ENOUGH), seen // SHARE), MOST_BATCHES * MOST_ROWS)
    assert 1 <= chosen <= limit + MOST_BATCHES  # each of them may have a row too many
    assert chosen >= min(limit, MOST_BATCHES // 2)


def test_those_kept_are_spread_over_all_of_them() -> None:
    excerpt = Excerpt(DYNAMIC)
    for i in range(1000):
        excerpt.offer(batch(i))
    steps = np.diff(numbers(excerpt))
    assert numbers(excerpt)[0] == 0
    assert numbers(excerpt)[-1] >= 1000 - 2 * steps.max()
    assert steps.max() <= 2 * steps.min()


def test_no_more_is_in_memory_than_what_is_said() -> None:
    excerpt = Excerpt(DYNAMIC)
    for i in range(200):
        excerpt.offer(batch(i, 100))
        held = excerpt._batches  # the claim is about what is held
        assert len(held) <= MOST_BATCHES
        assert all(len(each["x"]) <= MOST_ROWS for each in held)


def test_a_big_batch_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.samples.excerpt.MOST_BYTES", 20)
    excerpt = Excerpt(STATIC)
    for i in range(40):
        excerpt.offer(batch(i, 4))
    assert numbers(excerpt) == [0]


def test_a_static_batch_is_not_cut() -> None:
    excerpt = Excerpt(STATIC)
    for i in range(8):
        excerpt.offer(batch(i, 4))
    assert [each["x"].shape for each in excerpt.chosen()] == [(4, 2)] * 4
    assert excerpt.samples == 32
    assert excerpt.whole() == []


def test_the_first_batch_that_is_cut_is_kept_whole_beside_the_others() -> None:
    excerpt = Excerpt(DYNAMIC)
    assert excerpt.whole() == []
    for i in range(8):
        excerpt.offer(batch(i, 40))
    (whole,) = excerpt.whole()
    assert np.array_equal(whole["x"], batch(0, 40)["x"])


def test_state_that_goes_round_keeps_the_first_batches() -> None:
    excerpt = Excerpt(DYNAMIC, ["h"])
    for i in range(100):
        excerpt.offer(batch(i))
    assert numbers(excerpt) == list(range(ENOUGH))


@pytest.mark.parametrize(
    ("count", "apart"), [(7, 0), (8, 2), (40, 10), (64, 16), (256, 16), (1000, 62)]
)
def test_a_quarter_is_held_apart_until_that_is_enough(count: int, apart: int) -> None:
    every = every_by_itself(count)
    assert (0 if every is None else count // every) == apart


def test_arrays_are_copied_for_their_owner_may_write_into_them() -> None:
    excerpt, given = Excerpt(DYNAMIC), batch(1)
    excerpt.offer(given)
    given["x"][:] = 9
    assert numbers(excerpt) == [1]


def test_watching_passes_the_samples_on_as_they_are() -> None:
    excerpt = Excerpt(DYNAMIC)
    samples = open_samples([batch(i) for i in range(5)], DYNAMIC)
    probed = excerpt.watching(samples)
    assert (probed.where, probed.count) == (samples.where, samples.count)
    for ours, theirs in itertools.zip_longest(probed, samples):
        assert np.array_equal(ours["x"], theirs["x"])
    assert excerpt.samples == 5


def test_of_equal_batches_one_is_chosen() -> None:
    excerpt = Excerpt(DYNAMIC)
    for i in range(12):
        excerpt.offer(batch(i % 3))
    assert numbers(excerpt) == [0, 1, 2]


def test_nothing_seen_nothing_chosen() -> None:
    assert Excerpt(DYNAMIC).chosen() == []
