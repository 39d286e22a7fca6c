from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.observers._bins import MIN_EXPONENT, ZeroAnchoredHistogram

BINS = 64
F32 = npt.NDArray[np.float32]

numbers = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),  # subnormal numbers too
    st.sampled_from([0.0, -0.0, 6.0, -6.0, 1.5, 1e-45, -1e-45, 3e38, -3e38]),
    st.integers(-200, 200).map(lambda i: i / 64),
)
samples = st.lists(numbers, min_size=1, max_size=60)


def histogram(values: list[float] | F32, bins: int = BINS) -> ZeroAnchoredHistogram:
    result = ZeroAnchoredHistogram(bins)
    x = np.asarray(values, np.float32)
    if x.size:
        result.add(x, x.min(), x.max())
    return result


def assert_same(left: ZeroAnchoredHistogram, right: ZeroAnchoredHistogram) -> None:
    a, b = left.state(), right.state()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.mark.nightly
@given(values=samples, data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_split_merged_in_any_order_gives_the_identical_state(
    values: list[float], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(values))
    cuts = data.draw(st.lists(st.integers(0, len(values)), max_size=6).map(sorted))
    starts, ends = [0, *cuts], [*cuts, len(values)]
    shards = [histogram(shuffled[a:b]) for a, b in zip(starts, ends, strict=True)]
    while len(shards) > 1:  # a random tree
        right = shards.pop(data.draw(st.integers(0, len(shards) - 1)))
        left = shards.pop(data.draw(st.integers(0, len(shards) - 1)))
        shards.append(left.merged(right))
    assert_same(shards[0], histogram(values))


@given(values=samples, data=st.data())
@settings(max_examples=150, deadline=None)
def test_batches_observed_one_after_another_give_the_identical_state(
    values: list[float], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(values)))
    result = ZeroAnchoredHistogram(BINS)
    for part in (values[cut:], values[:cut]):
        x = np.asarray(part, np.float32)
        if x.size:
            result.add(x, x.min(), x.max())
    assert_same(result, histogram(values))


@given(samples)
@settings(max_examples=150, deadline=None)
def test_counts_are_those_of_exact_arithmetic(values: list[float]) -> None:
    from fractions import Fraction

    result = histogram(values)
    expected = np.zeros(4 * BINS, np.int64)
    for value in np.asarray(values, np.float32).tolist():
        y = Fraction(value) * BINS / Fraction(2) ** result.exponent
        expected[int(y.__floor__() + y.__ceil__()) + 2 * BINS] += 1
    np.testing.assert_array_equal(result.counts, expected)


@given(samples)
@settings(max_examples=100, deadline=None)
def test_absolute_is_the_histogram_of_absolute_values(values: list[float]) -> None:
    x = np.abs(np.asarray(values, np.float32))
    folded, expected = histogram(values).absolute(), histogram(x)
    np.testing.assert_array_equal(folded.counts, expected.counts)
    assert folded.maximum == expected.maximum
    assert folded.minimum <= expected.minimum


def test_zeros_and_levels_are_counted_apart() -> None:
    result = histogram([0.0, 0.0, 6.0, 6.0, 6.0, 5.99, 0.01])
    zero, at_six = 2 * BINS, 2 * BINS + round(2 * 6.0 / result.width)
    assert result.counts[zero] == 2
    assert result.counts[zero + 1] == 1
    assert result.counts[at_six] == 3
    assert result.counts[at_six - 1] == 1


def test_subnormal_numbers_beside_huge_ones_are_no_zeros() -> None:
    result = histogram([1e-45, -1e-45, 3e38])
    assert result.counts[2 * BINS] == 0
    assert result.counts[2 * BINS + 1] == 1
    assert result.counts[2 * BINS - 1] == 1


def test_batch_of_zeros_leaves_the_bins_fine() -> None:
    assert_same(histogram([0.0]).merged(histogram([0.25])), histogram([0.25, 0.0]))


def test_memory_is_bounded() -> None:
    rng = np.random.default_rng(0)
    result = ZeroAnchoredHistogram(BINS)
    for exponent in range(-40, 30):
        x = (rng.normal(size=100) * 10.0**exponent).astype(np.float32)
        result.add(x, x.min(), x.max())
        assert result.counts.nbytes == 4 * BINS * 8
    assert result.counts.sum() == 70 * 100


def test_empty_histogram_merges_as_nothing() -> None:
    empty, full = ZeroAnchoredHistogram(BINS), histogram([1.0, -3.0])
    assert_same(empty.merged(full), full)
    assert_same(full.merged(empty), full)
    assert empty.merged(empty).exponent == MIN_EXPONENT


def test_counts_do_not_saturate() -> None:
    result = histogram([1.0])
    for _ in range(60):  # doubles 2^60 times over: float32 counts stop at 2^24
        result = result.merged(result)
    assert result.counts.sum() == 2**60


@pytest.mark.parametrize("size", [1, 32_767, 32_768, 32_769, 100_000])
def test_every_chunk_is_counted(size: int) -> None:
    x = np.linspace(-3, 5, size).astype(np.float32)
    assert histogram(x).counts.sum() == size
    assert_same(histogram(x), histogram(np.asfortranarray(x[::-1])))


def test_kept_values_count_as_counted_ones_do() -> None:
    rng = np.random.default_rng(7)
    parts = [(rng.normal(size=300) * 2.0**k).astype(np.float32) for k in (0, 3, -2, 9)]
    few, many = ZeroAnchoredHistogram(2048), ZeroAnchoredHistogram(2048)
    many.own_counts()  # counts from the first value on
    for x in parts:
        few.add(x, x.min(), x.max())
        many.add(x, x.min(), x.max())
    assert few.exponent == many.exponent
    np.testing.assert_array_equal(few.counts, many.counts)


def test_a_deep_copy_is_no_longer_changed() -> None:
    x = np.arange(1, 6000, dtype=np.float32)
    histogram = ZeroAnchoredHistogram(2048)
    histogram.add(x, x.min(), x.max())
    twin, before = copy.deepcopy(histogram), histogram.counts.copy()
    histogram.add(2 * x, 2 * x.min(), 2 * x.max())
    np.testing.assert_array_equal(twin.counts, before)
    twin.add(x, x.min(), x.max())
    np.testing.assert_array_equal(twin.counts, 2 * before)
