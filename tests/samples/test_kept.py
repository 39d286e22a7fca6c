from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxq.samples import InputSpec, open_samples
from onnxq.samples.kept import MOST_BATCHES, MOST_ROWS, SHARE, Kept, rows_of

DYNAMIC = (InputSpec("x", np.dtype(np.float32), ("n", 2)),)
STATIC = (InputSpec("x", np.dtype(np.float32), (4, 2)),)


def batch(number: int, rows: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.full((rows, 2), number, np.float32)}


def numbers(kept: Kept) -> list[int]:
    return [int(each["x"][0, 0]) for each in kept.chosen()]


@pytest.mark.parametrize("count", [1, 7, 16, 17, 100, 1000])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_about_one_sample_in_sixteen_is_kept_and_at_least_one(count: int, rows: int) -> None:
    kept = Kept(DYNAMIC)
    for i in range(count):
        kept.offer(batch(i, rows))
    assert kept.samples == count * rows
    chosen = sum(map(rows_of, kept.chosen()))
    limit = min(max(1, count * rows // SHARE), MOST_BATCHES * MOST_ROWS)
    assert 1 <= chosen <= limit + MOST_BATCHES  # each of them may have a row too many
    assert chosen >= min(limit, MOST_BATCHES // 2)


def test_those_kept_are_spread_over_all_of_them() -> None:
    kept = Kept(DYNAMIC)
    for i in range(1000):
        kept.offer(batch(i))
    steps = np.diff(numbers(kept))
    assert numbers(kept)[0] == 0
    assert numbers(kept)[-1] >= 1000 - 2 * steps.max()
    assert steps.max() <= 2 * steps.min()


def test_no_more_is_in_memory_than_what_is_said() -> None:
    kept = Kept(DYNAMIC)
    for i in range(200):
        kept.offer(batch(i, 100))
        held = kept._batches  # the claim is about what is held
        assert len(held) <= MOST_BATCHES
        assert all(len(each["x"]) <= MOST_ROWS for each in held)


def test_a_big_batch_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.samples.kept.MOST_BYTES", 20)
    kept = Kept(STATIC)
    for i in range(40):
        kept.offer(batch(i, 4))
    assert numbers(kept) == [0]


def test_a_static_batch_is_not_cut() -> None:
    kept = Kept(STATIC)
    for i in range(8):
        kept.offer(batch(i, 4))
    assert [each["x"].shape for each in kept.chosen()] == [(4, 2)]
    assert kept.samples == 32


def test_state_that_goes_round_keeps_the_first_batches() -> None:
    kept = Kept(DYNAMIC, ["h"])
    for i in range(100):
        kept.offer(batch(i))
    assert numbers(kept) == list(range(100 // SHARE))


def test_arrays_are_copied_for_their_owner_may_write_into_them() -> None:
    kept, given = Kept(DYNAMIC), batch(1)
    kept.offer(given)
    given["x"][:] = 9
    assert numbers(kept) == [1]


def test_watching_passes_the_samples_on_as_they_are() -> None:
    kept = Kept(DYNAMIC)
    samples = open_samples([batch(i) for i in range(5)], DYNAMIC)
    watched = kept.watching(samples)
    assert (watched.where, watched.count) == (samples.where, samples.count)
    for ours, theirs in itertools.zip_longest(watched, samples):
        assert np.array_equal(ours["x"], theirs["x"])
    assert kept.samples == 5


def test_nothing_seen_nothing_chosen() -> None:
    assert Kept(DYNAMIC).chosen() == []
