"""The value that says which numbers integers stand for, and the scales that follow from others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq import dtypes, qparams
from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.errors import QConfigError, ShapeError, UnsupportedError
from onnxq.qparams import (
    MAX_BIAS_INTEGER,
    MIN_SCALE,
    PerBlock,
    PerChannel,
    PerTensor,
    QParams,
    per_tensor,
    scale_for_int32_bias,
    shifted,
    stored_as,
    sum_scale,
)
from tests.random_qparams import CASES, GRANULARITIES, RUNS, SHAPE, make, random_qparams

if TYPE_CHECKING:
    from onnxq.dtypes import QDType
    from onnxq.qparams import Granularity


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, 1e39, 1e-50])
def test_a_scale_is_positive_and_finite_in_float32(bad: float) -> None:
    with pytest.raises(ShapeError, match="wanted positive, finite"):
        QParams(np.asarray(bad), np.asarray(0), INT8)


@pytest.mark.parametrize("bad", [-129, 128, 0.5, np.nan])
def test_a_zero_point_is_a_integer(bad: float) -> None:
    with pytest.raises(ShapeError, match=r"zero_point: got"):
        QParams(np.asarray(1.0), np.asarray(bad), INT8)


def test_the_smallest_scale_is_accepted() -> None:
    assert quantize(np.zeros(3, np.float32), per_tensor(MIN_SCALE, 7, UINT8)).tolist() == [7] * 3


def test_float16_has_no_qparams() -> None:
    with pytest.raises(UnsupportedError, match="float16 is a storage type"):
        per_tensor(1.0, 0, dtypes.FLOAT16)


@pytest.mark.parametrize(
    ("granularity", "scale", "message"),
    [
        (PerTensor(), [1.0], "rank 1"),
        (PerChannel(0), 1.0, "rank 0"),
        (PerChannel(3), [1.0] * 6, "axis 3 is outside"),
        (PerChannel(-4), [1.0] * 6, "axis -4 is outside"),
        (PerChannel(0), [1.0] * 5, "has 6 channels; scale has 5"),
        (PerBlock(1, 4), np.ones((6, 3, 5)), r"wants scale of shape \(6, 2, 5\); got \(6, 3, 5\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    granularity: Granularity, scale: object, message: str
) -> None:
    scales = np.asarray(scale, np.float32)
    with pytest.raises(ShapeError, match=message):
        quantize(
            np.ones(SHAPE, np.float32), QParams(scales, np.zeros_like(scales), INT8, granularity)
        )


def test_scale_and_zero_point_have_one_shape() -> None:
    with pytest.raises(ShapeError, match="must be equal"):
        make(np.ones(3), np.zeros(4), INT8, PerChannel(0))


def test_a_block_has_a_size() -> None:
    with pytest.raises(ShapeError, match="block size: got 0"):
        PerBlock(0, 0)


@given(
    seed=CASES, dtype=st.sampled_from([*RUNS, INT32]), granularity=st.sampled_from(GRANULARITIES)
)
@settings(max_examples=100, deadline=None)
def test_qparams_survive_json(seed: int, dtype: QDType, granularity: Granularity) -> None:
    rng = np.random.default_rng(seed)
    p = random_qparams(rng, dtype, granularity, SHAPE)
    scale = rng.integers(1, 0x7F7FFFFF, p.scale.shape, dtype=np.uint32).view(np.float32)
    p = QParams(scale, p.zero_point, dtype, granularity)
    back = QParams.from_dict(json.loads(json.dumps(p.to_dict())))
    assert back == p
    assert hash(back) == hash(p)
    assert back.scale.tobytes() == p.scale.tobytes()


def test_a_damaged_dict_is_refused() -> None:
    data = per_tensor(0.5, 1, INT8).to_dict()
    with pytest.raises(QConfigError, match="granularity is 'row'"):
        QParams.from_dict({**data, "granularity": "row"})
    with pytest.raises(QConfigError, match="got keys"):
        QParams.from_dict({**data, "axis": 1})
    with pytest.raises(QConfigError, match="'int9' is not known"):
        QParams.from_dict({**data, "dtype": "int9"})


def test_qparams_do_not_change_when_their_source_does() -> None:
    scale = np.ones(2, np.float32)
    p = QParams(scale, np.zeros(2, np.int8), INT8, PerChannel(0))
    scale[0] = 5
    assert p.scale.tolist() == [1, 1]
    with pytest.raises(ValueError, match="read-only"):
        p.scale[0] = 2
    assert p != per_tensor(1, 0, INT8)
    assert p != "something else"


def test_qschemes_are_the_four_documented_ones() -> None:
    assert [s.value for s in qparams.QScheme] == [
        "per_tensor_affine",
        "per_tensor_symmetric",
        "per_channel_affine",
        "per_channel_symmetric",
    ]
    assert [s.symmetric for s in qparams.QScheme] == [False, True, False, True]
    assert [s.per_channel for s in qparams.QScheme] == [False, False, True, True]


def test_the_scale_of_sums_is_the_product_in_float32_and_never_0() -> None:
    x = per_tensor(0.1, 0, UINT8)
    steps = np.array([0.3, 7.0], np.float32)
    w = QParams(steps, np.zeros(2, np.int8), INT8, PerChannel(0))
    assert np.array_equal(sum_scale(x, w), np.float32(0.1) * steps)
    tiny = per_tensor(float(MIN_SCALE), 0, INT8)
    assert sum_scale(tiny, tiny) == MIN_SCALE
    assert sum_scale(x, tiny).shape == ()
    assert sum_scale(x, w).dtype == np.float32


def test_scales_are_raised_just_as_far_as_the_bias_needs() -> None:
    x, held = np.float32(0.5), np.array([1e-9, 1.0], np.float32)
    bias = np.array([2.0, 2.0], np.float32)
    raised = scale_for_int32_bias(held, bias, np.asarray(x))
    assert raised.dtype == np.float32
    assert raised[1] == held[1]
    assert abs(bias[0] / (0.5 * float(raised[0])) - MAX_BIAS_INTEGER) <= MAX_BIAS_INTEGER * 2**-23


def test_groups_of_a_bias_share_the_scales_that_the_largest_of_them_needs() -> None:
    x, held = np.asarray(np.float32(1)), np.array([1e-9, 1e-9], np.float32)
    shared = scale_for_int32_bias(held, np.array([1.0, 2.0, 8.0, 4.0], np.float32), x)
    assert np.array_equal(shared, scale_for_int32_bias(held, np.array([8.0, 4.0], np.float32), x))
    whole = scale_for_int32_bias(np.asarray(held[0]), np.array([1.0, 8.0], np.float32), x)
    assert whole.shape == ()
    assert whole == shared[0]


def test_shifted_integers_stand_for_the_same_numbers_beside_the_shifted_zero_point() -> None:
    integers, p = np.arange(-128, 128).astype(np.int8), per_tensor(0.5, -7, INT8)
    assert np.array_equal(
        dequantize(shifted(integers), stored_as(p, UINT8)), dequantize(integers, p)
    )
