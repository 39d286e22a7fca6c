from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.affine import quantize
from onnxq.dtypes import INT8
from onnxq.operator import OpCategory, Rule, WeightSlot
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.static.planning import pair_range
from onnxq.static.planning.constants import PlannedWeight
from onnxq.static.planning.pair_range import fit_pairs
from onnxq.targets.bias_preserving import LARGEST_SUM, BiasPreservingRounding
from tests.examples import weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

COLUMNS = Rule(OpCategory.COMPUTE, weight=WeightSlot(1, 1), saturating_pairs=True, pair_axes=(0,))
CONV = Rule(OpCategory.COMPUTE, weight=WeightSlot(1, 0), saturating_pairs=True, pair_axes=(2, 3, 1))
ANY_TWO = dataclasses.replace(COLUMNS, pair_axes=())


def plain(array: Singles, axis: int = 1) -> PlannedWeight:
    """The full range, one scale per channel."""
    scale = np.abs(np.moveaxis(array, axis, 0)).reshape(array.shape[axis], -1).max(axis=1)
    scale = np.maximum(scale / np.float32(127), np.float32(2**-126))
    qparams = QParams(scale, np.zeros(scale.shape, np.int8), INT8, PerChannel(axis))
    return PlannedWeight("w", qparams, 127)


def integers(weight: PlannedWeight, array: Singles) -> npt.NDArray[np.int64]:
    found = quantize(array, weight.qparams).astype(np.int64)
    assert weight.integer_limit is not None
    return np.clip(found, -weight.integer_limit, weight.integer_limit)


def saturates(b: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether some uint8 activations take a pair (2k, 2k + 1) of a column of b beyond int16."""
    even = b[: len(b) // 2 * 2].reshape(-1, 2, b.shape[1])
    highest = 255 * np.maximum(even, 0).sum(axis=1)
    lowest = 255 * np.minimum(even, 0).sum(axis=1)
    return np.asarray(((highest > 32767) | (lowest < -32768)).any(axis=0))


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(1e-6, 1e6))
def test_no_activations_saturate_and_no_smaller_scale_would_do(
    seed: int, inner: int, size: float
) -> None:
    array = weights(seed, inner, 6) * np.float32(size)
    before = plain(array)
    after, reduction = fit_pairs(before, array, COLUMNS)
    assert not saturates(integers(after, array)).any()
    bad = saturates(integers(before, array))
    old, new = before.qparams.scale, after.qparams.scale
    np.testing.assert_array_equal(new > old, bad)
    assert (reduction is None) == (not bad.any())
    assert (new <= old * np.float32(127 / 64) * np.float32(1.01)).all()
    smaller = dataclasses.replace(before.qparams, scale=np.nextafter(new, np.float32(0)))
    assert (saturates(integers(dataclasses.replace(before, qparams=smaller), array)) | ~bad).all()


def test_what_fits_is_left_as_it_is() -> None:
    array = np.array([[1, 1], [-1, 0.007], [0.5, -0.5], [0.5, -0.5]], np.float32)
    weight = plain(array)
    assert fit_pairs(weight, array, COLUMNS) == (weight, None)


def test_two_of_one_sign_need_half_of_the_range_each() -> None:
    array = np.array([[1, -1], [1, -1]], np.float32)
    after, reduction = fit_pairs(plain(array), array, COLUMNS)
    np.testing.assert_array_equal(np.abs(integers(after, array)), 64)
    assert reduction is not None
    assert (reduction.channels, reduction.of) == (2, 2)
    assert reduction.largest == reduction.mean == pytest.approx(127 / 64.5)  # 64.5 rounds to even


def test_pairs_of_a_convolution_are_neighbours_in_its_channels() -> None:
    array = np.zeros((2, 3, 1, 2), np.float32)  # K: tap 0 of channels 0, 1, 2, then tap 1
    array[0, 0, 0, 0] = array[0, 1, 0, 0] = 1  # a pair
    array[1, 1, 0, 0] = array[1, 2, 0, 0] = 1  # (1, 2): none
    after, reduction = fit_pairs(plain(array, 0), array, CONV)
    assert reduction is not None
    np.testing.assert_array_equal(integers(after, array)[:, 1, 0, 0], [64, 127])
    array[1, :, 0, 0], array[1, 0, 0, 1] = [0, 0, 1], 1  # 3 channels: it straddles the taps
    after, _ = fit_pairs(plain(array, 0), array, CONV)
    assert integers(after, array)[1, 2, 0, 0] == 64


def test_without_an_order_any_two_weights_may_be_a_pair() -> None:
    array = np.array([[1, -1, 1], [0, 0, -1], [0, 0, 0], [1, -0.1, 0]], np.float32)
    after, _ = fit_pairs(plain(array), array, ANY_TWO)
    first, second, third = np.abs(integers(after, array)).max(axis=0)
    assert (first, third) == (64, 127)
    assert LARGEST_SUM - 13 <= second < 127
    assert fit_pairs(plain(array[:1]), array[:1], ANY_TWO)[1] is None


def test_a_scale_of_the_whole_tensor_grows_with_its_worst_channel() -> None:
    array = np.array([[1, 1], [-1, 1]], np.float32)
    qparams = QParams(np.array(1 / 127, np.float32), np.zeros((), np.int8), INT8, PerTensor())
    after, reduction = fit_pairs(PlannedWeight("w", qparams, 127), array, COLUMNS)
    assert after.qparams.scale.shape == ()
    assert np.abs(integers(after, array)).max() == 64
    assert reduction is not None
    assert (reduction.channels, reduction.of) == (1, 1)


def test_only_the_channels_asked_for_are_raised() -> None:
    array = np.ones((2, 3), np.float32)
    after, reduction = fit_pairs(plain(array), array, COLUMNS, {1})
    np.testing.assert_array_equal(integers(after, array)[0], [127, 64, 127])
    assert reduction is not None
    assert reduction.channels == 1
    assert fit_pairs(plain(array), array, COLUMNS, set())[1] is None


def test_integers_that_an_observer_clips_fit_too() -> None:
    array = np.array([[1000], [1000]], np.float32)  # 1000 steps: far beyond the integers
    qparams = QParams(np.ones(1, np.float32), np.zeros(1, np.int8), INT8, PerChannel(1))
    after, _ = fit_pairs(PlannedWeight("w", qparams, 127), array, COLUMNS)
    assert np.abs(integers(after, array)).max() == 64


def test_the_weights_own_factors_count() -> None:
    array = np.array([[1, 0.5], [0.1, 0.1]], np.float32).reshape(2, 2, 1, 1)
    weight = dataclasses.replace(plain(array, 0), channel_scale=(1.0, 2.0))
    channel_scale = np.array([1, 2], np.float32)
    scaled = dataclasses.replace(
        weight,
        qparams=dataclasses.replace(weight.qparams, scale=weight.qparams.scale * channel_scale),
    )
    gained = array * channel_scale.reshape(2, 1, 1, 1)
    after, _ = fit_pairs(scaled, array, CONV)
    assert not saturates(integers(after, gained).reshape(2, 2).T).any()


@pytest.mark.parametrize("elements", [1, 24, 100])
def test_pieces_of_a_large_weight_give_the_same(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = weights(5, 8, 9)
    whole = fit_pairs(plain(array), array, COLUMNS)
    monkeypatch.setattr(pair_range, "CHUNK_ELEMENTS", elements)
    assert fit_pairs(plain(array), array, COLUMNS) == whole


def test_a_weight_that_gives_up_range_keeps_its_sums() -> None:
    array = np.ones((2, 3), np.float32)
    assert fit_pairs(plain(array), array, COLUMNS)[0].bias_preserving == BiasPreservingRounding(
        (0,)
    )
    assert fit_pairs(plain(array), array, COLUMNS, {2, 1})[
        0
    ].bias_preserving == BiasPreservingRounding((0,), (1, 2))
    assert fit_pairs(plain(array), array, ANY_TWO)[0].bias_preserving is None
