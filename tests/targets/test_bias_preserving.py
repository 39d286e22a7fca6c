from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.affine import quantize
from onnxq.dtypes import INT8
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.targets import bias_preserving
from onnxq.targets.bias_preserving import BiasPreservingRounding, InputMeans, leave_int16
from tests.examples import weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

COLUMNS = BiasPreservingRounding((0,))
CONV = BiasPreservingRounding((2, 3, 1))


def per_channel(scale: npt.ArrayLike, axis: int) -> QParams:
    array = np.array(scale, np.float32)
    return QParams(array, np.zeros(array.shape, np.int8), INT8, PerChannel(axis))


def nearest(x: Singles, qparams: QParams, limit: int = 127) -> npt.NDArray[np.int64]:
    return np.clip(quantize(x, qparams).astype(np.int64), -limit, limit)


def saturated(integers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Columns with a pair (2k, 2k + 1) that leaves int16."""
    even = len(integers) // 2 * 2
    return np.asarray(leave_int16(integers[0:even:2], integers[1:even:2]).any(axis=0))


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(0.3, 2.1), st.sampled_from([64, 127])
)
def test_sums_come_as_near_as_whole_integers_can_and_no_pair_leaves_int16(
    seed: int, inner: int, factor: float, limit: int
) -> None:
    x = weights(seed, inner, 6)
    size = np.maximum(np.abs(x).max(axis=0), 1e-6)
    qparams = per_channel(size / 127 * factor, 1)
    plain, integers = (
        nearest(x, qparams, limit),
        COLUMNS.integers(x, qparams, limit).astype(np.int64),
    )
    steps = x.astype(np.float64) / qparams.scale
    inside = np.abs(steps - plain) <= 0.5 + 1e-4  # a tie in float32
    assert np.abs(integers).max() <= limit
    assert (np.abs(integers - steps)[inside] < 1 + 1e-4).all()
    np.testing.assert_array_equal(integers[~inside], plain[~inside])
    assert not (saturated(integers) & ~saturated(plain)).any()
    before, after = (np.abs(((steps - c) * inside).sum(axis=0)) for c in (plain, integers))
    assert (after <= before + 1e-3).all()
    free = (np.abs(steps) < 60).all(axis=0)  # no bound is near
    assert (after[free] <= 0.501).all()


def test_those_next_to_a_tie_are_turned() -> None:
    x = np.array([[0.3, -0.3], [1.4, -1.4], [2.45, 0], [5, 5], [7.2, -0.2]], np.float32)
    integers = COLUMNS.integers(x, per_channel([1, 1], 1), 127)  # 1.35 and -0.9 steps are missing
    np.testing.assert_array_equal(integers[:, 0], [0, 1, 3, 5, 7])
    np.testing.assert_array_equal(integers[:, 1], [0, -2, 0, 5, 0])


def test_of_equal_ones_the_first_are_turned() -> None:
    x = np.full((4, 1), 0.25, np.float32)
    integers = COLUMNS.integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [1, 0, 0, 0])


def test_a_pair_at_its_bound_stays_as_it_is() -> None:
    x = np.array([[64.4], [64.4], [10.3], [9.9]], np.float32)  # 128 already; 1 step is missing
    integers = COLUMNS.integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [64, 64, 11, 10])


def test_clipped_weights_are_made_up_for_by_none() -> None:
    x = np.array([[1000], [1.1], [1.1]], np.float32)
    integers = COLUMNS.integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [127, 1, 1])


def test_channels_that_are_not_named_are_rounded_to_the_nearest() -> None:
    x = np.full((4, 2), 0.25, np.float32)
    integers = BiasPreservingRounding((0,), (1,)).integers(x, per_channel([1, 1], 1), 127)
    np.testing.assert_array_equal(integers.sum(axis=0), [0, 1])


def test_one_scale_of_the_whole_tensor_keeps_the_sum_of_each_channel() -> None:
    x = np.full((4, 2), 0.25, np.float32)
    qparams = QParams(np.array(1, np.float32), np.zeros((), np.int8), INT8, PerTensor())
    np.testing.assert_array_equal(COLUMNS.integers(x, qparams, 127).sum(axis=0), [1, 1])


def test_neighbours_of_a_convolution_are_of_one_tap() -> None:
    x = np.zeros((1, 2, 1, 2), np.float32)
    x[0, :, 0, 0], x[0, :, 0, 1] = 64.4, (10.3, 0)
    integers = CONV.integers(x, per_channel([1], 0), 127)
    np.testing.assert_array_equal(integers[0, :, 0, 0], [64, 64])
    np.testing.assert_array_equal(integers[0, :, 0, 1], [11, 0])


@pytest.mark.parametrize("elements", [1, 24, 100])
def test_pieces_of_a_large_weight_give_the_same(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weights(5, 8, 9)
    qparams = per_channel(np.abs(x).max(axis=0) / 127, 1)
    whole = COLUMNS.integers(x, qparams, 127)
    monkeypatch.setattr(bias_preserving, "CHUNK_ELEMENTS", elements)
    np.testing.assert_array_equal(COLUMNS.integers(x, qparams, 127), whole)


def with_inputs(means: list[float], deviations: list[float]) -> BiasPreservingRounding:
    return BiasPreservingRounding((0,), inputs=InputMeans(0, tuple(means), tuple(deviations)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_the_mean_square_of_the_errors_never_grows(seed: int, inner: int) -> None:
    x, rng = weights(seed, inner, 6), np.random.default_rng(seed)
    qparams = per_channel(np.maximum(np.abs(x).max(axis=0), 1e-6) / 60, 1)
    means, deviations = rng.normal(size=inner), rng.uniform(0, 1, inner)
    kept = with_inputs(means.tolist(), deviations.tolist())
    plain, integers = nearest(x, qparams), kept.integers(x, qparams, 127).astype(np.int64)

    def mean_squares(c: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        d = x / qparams.scale.astype(np.float64) - c
        return np.asarray((d**2).T @ deviations**2 + (means @ d) ** 2)

    unit = np.abs(means).max() ** 2  # of which means and variances are rounded to thousandths
    assert (mean_squares(integers) <= mean_squares(plain) + 2e-3 * inner * unit).all()


def test_weights_of_large_means_and_small_deviations_are_turned_first() -> None:
    x = np.full((4, 1), 0.25, np.float32)
    scale = per_channel([1], 1)
    integers = with_inputs([1, 2, 2, 1], [0, 1, 0, 0]).integers(x, scale, 127)  # 1.5 are missing
    np.testing.assert_array_equal(integers[:, 0], [0, 0, 1, 0])
    steady = with_inputs([1, 1, 1, 1], [9, 9, 9, 9]).integers(x, scale, 127)
    np.testing.assert_array_equal(steady[:, 0], [0, 0, 0, 0])


def test_negative_means_turn_weights_the_other_way() -> None:
    x = np.full((4, 1), 0.25, np.float32)
    integers = with_inputs([-1, -1, 1, 1], [0] * 4).integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [0, 0, 0, 0])
    integers = with_inputs([-1, -1, -1, 1], [0] * 4).integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [0, 0, 0, 0])  # half an LSB either way
    integers = with_inputs([-1, -1, -1, -1], [0] * 4).integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [1, 0, 0, 0])


def test_one_channel_far_above_the_others_leaves_these_their_turn() -> None:
    x = np.full((5, 1), 0.4, np.float32)
    x[0] = 0.001
    integers = with_inputs([1000, 1, 1, 1, 1], [0] * 5).integers(x, per_channel([1], 1), 127)
    assert integers[0, 0] == 0
    assert integers[1:, 0].sum() == 3  # 1.0 + 4 * 0.4 = 2.6


def test_groups_of_a_convolution_have_the_means_of_their_own_channels() -> None:
    x = np.full((2, 2, 1, 1), 0.4, np.float32)
    inputs = InputMeans(1, (1, 0, 0, 1), (0, 0, 0, 0))
    integers = BiasPreservingRounding((2, 3, 1), inputs=inputs).integers(
        x, per_channel([1, 1], 0), 127
    )
    np.testing.assert_array_equal(integers.reshape(2, 2), [[0, 0], [0, 0]])
    inputs = InputMeans(1, (1, 1, 0, 1), (0, 0, 0, 0))
    integers = BiasPreservingRounding((2, 3, 1), inputs=inputs).integers(
        x, per_channel([1, 1], 0), 127
    )
    np.testing.assert_array_equal(integers.reshape(2, 2), [[1, 0], [0, 0]])


def test_a_pair_of_which_one_turns_up_and_one_down_fits_int16_whichever_turn() -> None:
    x = np.array([[64.4], [63.6]], np.float32)  # 64 + 64; 65 + 63 would fit, 65 + 64 would not
    integers = with_inputs([1, 1e-3], [0, 0]).integers(x, per_channel([1], 1), 127)
    np.testing.assert_array_equal(integers[:, 0], [64, 64])
