"""A tensor tells its integers and qparams, and refuses integers that do not fit them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq import dtypes, qtensor
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.qparams import PerBlock, QParams, per_tensor
from onnxq.qtensor import (
    QTensor,
    quantize_per_tensor,
)
from tests.qtensor.examples import INTEGERS, X, per_channel_quantized, per_tensor_quantized, row


def test_integers_are_copied() -> None:
    integers = np.zeros(3, np.uint8)
    y = QTensor(integers, per_tensor(1.0, 0, qtensor.quint8))
    integers[0] = 1
    y.int_repr()[1] = 1
    assert y.int_repr().tolist() == [0, 0, 0]


def test_integers_must_fit_the_qparams() -> None:
    with pytest.raises(ShapeError, match="integers have dtype int64; uint8 wants uint8"):
        QTensor(np.zeros(3, np.int64), per_tensor(1.0, 0, qtensor.quint8))
    with pytest.raises(ShapeError, match="integers are 0 to 16; uint4 holds 0 to 15"):
        QTensor(np.array([0, 16], np.uint8), per_tensor(1.0, 0, dtypes.UINT4))
    with pytest.raises(ShapeError, match="has 4 channels; scale has 3"):
        QTensor(np.zeros((2, 4), np.int8), per_channel_quantized().qparams)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_it_tells_its_integers_and_qparams(dtype: dtypes.QDType) -> None:
    y = quantize_per_tensor(X, 0.5, 1, dtype)
    assert (y.dtype, y.shape, y.ndim, y.numel()) == (dtype, (2, 3, 4), 3, 24)
    assert (y.size(), y.size(1), y.size(-1), len(y)) == ((2, 3, 4), 3, 4, 2)
    assert (y.q_scale(), y.q_zero_point()) == (0.5, 1)
    assert np.array_equal(y.dequantize(), (y.int_repr().astype(np.float32) - 1) * np.float32(0.5))


def test_channels_are_told_in_torchs_types() -> None:
    y = per_channel_quantized()
    assert y.q_per_channel_scales().dtype == np.float64
    assert y.q_per_channel_scales().astype(np.float32).tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert y.q_per_channel_zero_points().dtype == np.int64
    assert y.q_per_channel_axis() == 1


def test_a_question_about_another_scheme_is_refused() -> None:
    for name in ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis"):
        with pytest.raises(UnsupportedError, match=f"{name}: .* not per channel"):
            getattr(per_tensor_quantized(), name)()
    for name in ("q_scale", "q_zero_point"):
        with pytest.raises(UnsupportedError, match=f"{name} works on per-tensor"):
            getattr(per_channel_quantized(), name)()
    p = QParams(
        np.ones((2, 2), np.float32), np.zeros((2, 2), np.int8), qtensor.qint8, PerBlock(1, 2)
    )
    with pytest.raises(UnsupportedError, match="no name for PerBlock"):
        QTensor(np.zeros((2, 4), np.int8), p).qscheme()


def test_a_dim_that_is_not_there_has_no_size() -> None:
    with pytest.raises(ShapeError, match="size: a tensor of shape"):
        per_tensor_quantized().size(3)


def test_one_element_is_a_number_and_a_truth() -> None:
    y = row(3)
    assert y.item() == 1.5
    assert bool(y)
    assert not bool(row(0))
    with pytest.raises(ShapeError, match="item"):
        bool(row(1, 2))


def test_it_does_not_turn_into_an_array_unasked() -> None:
    with pytest.raises(UnsupportedError, match=r"dequantize\(\) for its real values"):
        np.asarray(per_tensor_quantized())


def test_a_clone_shares_nothing() -> None:
    q = per_tensor_quantized()
    for y in (q.clone(), q.transpose(0, 2).clone()):
        y.copy_(np.zeros(y.shape, np.float32))
    assert q.equal(per_tensor_quantized())
    assert q.transpose(0, 2).clone().is_contiguous()
