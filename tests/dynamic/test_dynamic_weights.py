from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.affine import dequantize, quantize
from onnxq.dynamic.dynamic_decision import DynamicWeightPlan
from onnxq.dynamic.dynamic_weights import (
    StorageKey,
    StoredScales,
    can_be_groupwise,
    observe_stored,
    permuted,
    plan_half,
    plan_stored,
    searched_as,
    stored_scales,
    unpermuted,
)
from onnxq.errors import ModelError, QConfigError
from onnxq.observers import LeastErrorObserver, MinMaxObserver, NarrowRangeObserver
from onnxq.operator import DynamicWeight, Float
from onnxq.qparams import PerBlock, PerChannel, PerTensor, QParams
from onnxq.qparams.group_ranges import rounded, search_ranges
from onnxq.qparams.group_spec import GroupSpec, Scheme
from tests.examples import weights

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

NARROW = NarrowRangeObserver.with_args()


def value(array: Array) -> ir.Value:
    return ir.Value(
        name="w", shape=ir.Shape(array.shape), const_value=ir.tensor(np.asarray(array), name="w")
    )


def planned(
    array: npt.NDArray[np.float32],
    axis: int | None,
    size: int | None = None,
    perm: tuple[int, ...] | None = None,
) -> QParams:
    key = StorageKey("w", axis, size, NARROW)
    weight = value(array)
    scales, _ = stored_scales(weight, key, 127)
    plan = plan_stored(weight, DynamicWeight(1, axis, perm), key, 127, scales)
    assert plan.qparams is not None
    return plan.qparams


def test_a_scale_per_channel_is_the_largest_weight_over_the_largest_integer() -> None:
    w = weights(0, 5, 7)
    qparams = planned(w, 1)
    assert qparams.granularity == PerChannel(1)
    np.testing.assert_array_equal(qparams.scale, np.abs(w).max(0) / np.float32(127))


def test_without_channels_there_is_one_scale_whatever_the_observer() -> None:
    w = weights(0, 5, 7)
    qparams = planned(w, None)
    assert qparams.granularity == PerTensor()
    assert qparams.scale == np.abs(w).max() / np.float32(127)


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_lie_along_the_axis_that_is_summed_over(axis: int) -> None:
    w = weights(0, 6, 10)
    qparams = planned(w, axis, 4)
    summed = 1 - axis
    assert qparams.granularity == PerBlock(summed, 4)
    for start in range(0, w.shape[summed], 4):
        block = np.take(w, range(start, min(start + 4, w.shape[summed])), summed)
        scale = np.take(qparams.scale, start // 4, summed)
        np.testing.assert_array_equal(scale, np.abs(block).max(summed) / np.float32(127))


def test_an_observer_of_one_scale_has_none_for_blocks() -> None:
    key = StorageKey("w", 1, 4, MinMaxObserver.with_args(dtype="uint8"))
    with pytest.raises(QConfigError, match=r"one scale for the whole tensor.*quantize-weights"):
        observe_stored(weights(0, 6, 10), key, 127)


@given(
    st.permutations((0, 1, 2)),
    st.sampled_from([None, 0, 1, 2]),
)
def test_qparams_follow_their_integers_when_these_are_transposed(
    perm: tuple[int, ...], axis: int | None
) -> None:
    w = weights(0, 3, 4, 5)
    plain, turned = planned(w, axis), planned(w, axis, None, tuple(perm))
    integers = np.transpose(quantize(w, plain), perm)
    np.testing.assert_array_equal(quantize(np.transpose(w, perm), turned), integers)
    assert unpermuted(turned, tuple(perm)) == plain


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_follow_their_integers_too(axis: int) -> None:
    w = weights(0, 8, 12)
    plain, turned = planned(w, axis, 4), planned(w, axis, 4, (1, 0))
    np.testing.assert_array_equal(quantize(w.T, turned), quantize(w, plain).T)
    assert permuted(permuted(plain, (1, 0)), (1, 0)) == plain


def test_nodes_that_share_a_weight_store_it_in_their_own_layouts() -> None:
    key = StorageKey("w", 1, None, NARROW)
    weight = value(weights(0, 5, 7))
    qparams, _ = observe_stored(weights(0, 5, 7), key, 64)
    scales = StoredScales(qparams)
    assert plan_stored(weight, DynamicWeight(1, 1), key, 64, scales).qparams == qparams
    turned = plan_stored(weight, DynamicWeight(1, 1, (1, 0)), key, 64, scales)
    assert turned.qparams == permuted(qparams, (1, 0))


def test_float16_has_no_qparams() -> None:
    w = value(weights(0, 5, 7))
    assert plan_half(w, DynamicWeight(1, 1)) == (DynamicWeightPlan(1, "w", None, None), [])


def test_float16_refuses_nan_and_leaves_large_numbers_in_float() -> None:
    with pytest.raises(ModelError, match="weight 'w' holds NaN or Inf"):
        plan_half(value(np.array([np.nan], np.float32)), DynamicWeight(1, 0))
    verdict, _ = plan_half(value(np.array([65520, 1], np.float32)), DynamicWeight(1, 0))
    assert isinstance(verdict, Float)
    assert "reaches 65520" in verdict.reason.words


def test_blocks_are_for_matrices_with_channels() -> None:
    assert can_be_groupwise(value(weights(0, 4, 4)), DynamicWeight(1, 1))
    assert not can_be_groupwise(value(weights(0, 4, 4)), DynamicWeight(1, None))
    assert not can_be_groupwise(value(weights(0, 4)), DynamicWeight(1, 0))


def test_weights_that_are_all_zero_in_float16_stay_float() -> None:
    small = value(np.array([[2.0**-25, -1e-9], [0, 1e-12]], np.float32))
    decision, _ = plan_half(small, DynamicWeight(1, None))
    assert isinstance(decision, Float)
    assert "'w' reaches only 2.98023e-08: in float16 all of it would be 0" in decision.reason.words
    zeros, _ = plan_half(value(np.zeros(4)), DynamicWeight(1, None))
    assert isinstance(zeros, DynamicWeightPlan)


def test_the_share_of_small_weights_that_float16_loses_is_noted() -> None:
    _, notes = plan_half(value(weights(0, 64, 64)), DynamicWeight(1, None))
    assert notes == []
    mixed = np.array([0, 1, 1e-9, 1e-5, 1], np.float32)
    _, (note,) = plan_half(value(mixed), DynamicWeight(1, None))
    assert "weight 'w' in float16: 25.00% of its nonzero numbers become 0" in note
    assert "25.00% more lose precision" in note


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "qscheme", "scheme"),
    [
        ("uint4", "per_channel_affine", Scheme.AFFINE),
        ("int4", "per_channel_affine", Scheme.AFFINE),
        ("int4", "per_channel_symmetric", Scheme.SYMMETRIC),
        ("uint2", "per_channel_affine", Scheme.AFFINE),
    ],
)
def test_ranges_of_the_least_error_are_those_of_quantize_weights(
    dtype: str, qscheme: str, scheme: Scheme, axis: int
) -> None:
    w = weights(0, 40, 24)
    observer = LeastErrorObserver.with_args(dtype=dtype, qscheme=qscheme)
    qparams, _ = observe_stored(w, StorageKey("w", axis, 16, observer), 127)
    rows = w if axis == 0 else w.T
    spec = GroupSpec(qparams.dtype.bits, 16, scheme, signed=False)
    rows = np.ascontiguousarray(rows)
    wanted = rounded(rows, spec, *search_ranges(rows, spec)).dequantized  # which rtn then raises
    found = dequantize(quantize(w, qparams), qparams)
    np.testing.assert_allclose(found if axis == 0 else found.T, wanted, rtol=1e-6, atol=1e-7)


def test_narrower_ranges_are_the_observer_s_own() -> None:
    narrow = LeastErrorObserver.with_args(dtype="int8", qscheme="per_channel_symmetric")
    assert searched_as(narrow, 32) is None  # -128 is no integer of its
    assert searched_as(NarrowRangeObserver.with_args(dtype="int4", quant_max=7), 32) is None
