from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.affine import fake_quantize
from onnxq.errors import CalibrationError
from onnxq.observers import HistogramObserver, PercentileObserver
from onnxq.observers._every_kth import EARLY, LEAST, WHOLE, EveryKth
from onnxq.observers.qparams_search import Moments
from tests.observers.whole import observe_whole

if TYPE_CHECKING:
    from onnxq.qparams import QParams

F32 = npt.NDArray[np.float32]
RNG = np.random.default_rng(21)
SHAPES = [(1, 64, 112, 112), (1, 256, 56, 56), (8, 197, 768), (1, 3, 224, 224), (1, 128, 3072)]
SIZE = 64 * 56 * 56
NORMAL = RNG.normal(size=SIZE).astype(np.float32)
TENSORS: dict[str, F32] = {
    "normal": NORMAL,
    "relu": np.maximum(NORMAL, 0),
    "mostly zero": np.maximum(NORMAL - 1.5, 0),
    "relu6": np.clip(4 * NORMAL, 0, 6),
    "gelu": (NORMAL / (1 + np.exp(-1.7 * NORMAL))).astype(np.float32),
    "laplace": RNG.laplace(size=SIZE).astype(np.float32),
    "student t5": RNG.standard_t(5, SIZE).astype(np.float32),
    "channels of other scales": (NORMAL.reshape(56 * 56, 64) * np.exp(RNG.normal(size=64))).astype(
        np.float32
    ),
}
LOSS_DB = {"mostly zero": 0.3}  # 7% are no zeros: 600 values tell a deviation of 5.5%


def in_one_batch(x: F32, index: int = 0, **arguments: object) -> HistogramObserver:
    observer = HistogramObserver.with_args(**arguments)()
    assert isinstance(observer, HistogramObserver)
    observer.observe(x.reshape(1, 64, 56, 56), index)
    return observer


def error(x: F32, p: QParams) -> float:
    return float(((fake_quantize(x, p).astype(np.float64) - x) ** 2).sum())


@pytest.mark.parametrize("shape", SHAPES)
def test_step_has_no_factor_in_common_with_any_size(shape: tuple[int, ...]) -> None:
    step = EveryKth.in_batch(shape, 0).step
    assert step > 1
    assert math.prod(shape) // step >= LEAST
    assert all(math.gcd(step, size) == 1 for size in shape)


def test_tensors_that_are_not_large_are_counted_whole() -> None:
    for shape in ((WHOLE - 1,), (2, LEAST), (), (7,)):
        assert EveryKth.in_batch(shape, 5).step == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_every_line_of_every_axis_has_its_share(shape: tuple[int, ...]) -> None:
    part = EveryKth.in_batch(shape, 3)
    counted = np.zeros(shape, np.int8)
    counted.reshape(-1)[part.first :: part.step] = 1
    for axis, size in enumerate(shape):
        in_lines = counted.sum(axis=axis, dtype=np.int64)
        assert in_lines.min() >= size // part.step
        assert in_lines.max() <= -(-size // part.step)


def test_as_many_batches_as_the_step_count_each_place_once() -> None:
    step = EveryKth.in_batch((1, 64, 56, 56), 0).step
    observer = HistogramObserver()
    for index in range(EARLY, EARLY + step):
        observer.observe(NORMAL.reshape(1, 64, 56, 56), index)
    once = HistogramObserver()
    observe_whole(once, NORMAL)
    np.testing.assert_array_equal(observer.histogram.counts, step * once.histogram.counts)


@pytest.mark.parametrize("index", [3, EARLY + 3])
def test_counted_values_stand_for_all(index: int) -> None:
    seen = in_one_batch(NORMAL, index).histogram
    # exactly so where every k-th is counted; the others are 0.5% of the values
    assert int(seen.counts.sum()) == pytest.approx(SIZE, rel=0.005)


@pytest.mark.parametrize("x", [NORMAL, np.maximum(NORMAL, 0)], ids=["both ends", "one end"])
def test_early_batches_count_all_that_is_far(x: F32) -> None:
    counted = EveryKth.in_batch((1, 64, 56, 56), 7).read(x.reshape(1, 64, 56, 56), 7)
    low, high = np.abs(counted.far[counted.far < 0]), counted.far[counted.far > 0]
    for found, values in ((low, -x), (high, x)):
        # chunks have bounds of their own: beyond the widest, every value is there
        ends = np.sort(values)[-50:] if found.size else ()
        np.testing.assert_array_equal(np.sort(found)[-50:], ends)
    assert 100 < counted.far.size < SIZE / 50


@pytest.mark.parametrize("beyond", [1, 2, 3, 96, 97, 98, 200, 300])
@pytest.mark.parametrize("index", [0, 5, EARLY])
def test_a_few_values_beyond_the_last_whole_chunk_are_counted(beyond: int, index: int) -> None:
    random = np.random.default_rng(beyond)
    x = random.normal(size=(1, (1 << 17) + beyond)).astype(np.float32)  # 2^17: the first chunk
    x[0, -1] = 9.0
    counted = EveryKth.in_batch(x.shape, index).read(x, index)
    assert counted.high == 9.0
    assert counted.weight > 1
    # one value of each chunk more or less, and 4 deviations of the far values at counted places
    bound = 2 * counted.weight + 4 * math.sqrt(counted.far.size * counted.weight)
    assert abs(counted.part.size * counted.weight + counted.far.size - x.size) < bound


def test_equal_values_at_a_bound_are_not_far() -> None:
    x = np.minimum(NORMAL, 0.5)  # 31% are the largest value
    counted = EveryKth.in_batch((1, 64, 56, 56), 0).read(x, 0)
    saturated = EveryKth.in_batch((1, 64, 56, 56), 0).read(np.clip(NORMAL, 0, 0.5), 0)
    assert (counted.far < 0).all()
    assert saturated.far.size == 0


@pytest.mark.parametrize("place", [0, 1, 777, SIZE - 1])
def test_min_and_max_are_exact_wherever_they_are(place: int) -> None:
    x = NORMAL.copy()
    x[place], x[SIZE // 2] = 60, -70
    seen = in_one_batch(x).histogram
    assert (float(seen.minimum), float(seen.maximum)) == (-70, 60)
    assert Moments(seen).quantile(1) * seen.width == pytest.approx(60, abs=seen.width)
    assert Moments(seen).quantile(0) * seen.width == pytest.approx(-70, abs=2 * seen.width)


def test_what_was_seen_does_not_depend_on_order_or_shards() -> None:
    batches = [np.roll(NORMAL, i).reshape(1, 64, 56, 56) * np.float32(i + 1) for i in range(4)]
    whole, parts = HistogramObserver(), [HistogramObserver(), HistogramObserver()]
    for index, x in enumerate(batches):
        whole.observe(x, index)
    for index in (3, 1, 0, 2):
        parts[index % 2].observe(batches[index], index)
    merged = parts[1].merge(parts[0])
    np.testing.assert_array_equal(whole.histogram.counts, merged.histogram.counts)


def test_few_far_values_decide_late_in_a_calibration_as_early() -> None:
    """Ten draws lost 0.02 dB in the mean, 0.05 at most; yet another one 0.2."""
    lost = []
    for seed in range(3):
        x = np.random.default_rng(seed).standard_t(5, (64, 1, 64, 28, 28)).astype(np.float32)
        exact, observer = HistogramObserver(), HistogramObserver()
        observe_whole(exact, x)
        for index, batch in enumerate(x):
            observer.observe(batch, index)
        least = error(x, exact.calculate_qparams())
        lost.append(10 * math.log10(error(x, observer.calculate_qparams()) / least))
    assert np.mean(lost) < 0.1
    assert max(lost) < 0.3


def test_layout_in_memory_does_not_matter() -> None:
    x = NORMAL.reshape(64, 56, 56)
    one, other = HistogramObserver(), HistogramObserver()
    one.observe(x, 1)
    other.observe(np.asfortranarray(x), 1)
    np.testing.assert_array_equal(one.histogram.counts, other.histogram.counts)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("scheme", ["per_tensor_affine", "per_tensor_symmetric"])
def test_error_of_the_qparams_that_one_batch_gives_is_within_a_tenth_of_a_decibel(
    name: str, scheme: str
) -> None:
    x = TENSORS[name].reshape(-1)
    arguments = {"dtype": "qint8", "qscheme": scheme}
    exact = HistogramObserver.with_args(**arguments)()
    observe_whole(exact, x)
    least = error(x, exact.calculate_qparams())
    for index in (0, EARLY - 1):
        found = in_one_batch(x, index, **arguments).calculate_qparams()
        assert 10 * math.log10(error(x, found) / least) < LOSS_DB.get(name, 0.1)


@pytest.mark.parametrize("percentile", [99.0, 99.9, 99.99])
def test_share_beyond_a_percentile_is_off_by_no_more_than_derived(percentile: float) -> None:
    observer = PercentileObserver(percentile)
    batches = 8
    rng = np.random.default_rng(0)  # one of its own: the order of tests decides nothing
    x = rng.normal(size=(batches, 1, 64, 56, 56)).astype(np.float32)
    for index, batch in enumerate(x):
        observer.observe(batch, index)
    p = observer.calculate_qparams()
    low, high = ((end - int(p.zero_point)) * float(p.scale) for end in (0, 255))
    share = 1 - percentile / 100
    counted = batches * SIZE / EveryKth.in_batch((1, 64, 56, 56), 0).step
    deviation = math.sqrt(1 / (share * counted)) if share > 0.005 else 0
    beyond = np.count_nonzero((x < low) | (x > high)) / x.size
    # 4 deviations; and half an LSB, by which the zero point moves both ends
    assert beyond / share == pytest.approx(1, abs=4 * deviation + 0.1)


def test_values_not_finite_are_found_wherever_they_are() -> None:
    x = NORMAL.reshape(1, 64, 56, 56).copy()
    x[0, 3, 2, 1] = np.nan
    with pytest.raises(CalibrationError, match=r"batch 4: 1 of 200704 values.*\[0, 3, 2, 1\]"):
        HistogramObserver().observe(x, 4)
