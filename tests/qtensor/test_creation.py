from __future__ import annotations

import numpy as np
import pytest

from onnxq import affine, dtypes, qparams, qtensor
from onnxq.errors import QConfigError, ShapeError, UnsupportedError
from onnxq.qtensor import (
    QTensor,
    _empty_affine_quantized,
    _empty_per_channel_affine_quantized,
    quantize_linear,
    quantize_per_channel,
    quantize_per_tensor,
)

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
INTEGERS = [t for t in dtypes.all_qdtypes() if t.is_integer]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_are_those_of_quantize_linear(dtype: dtypes.QDType) -> None:
    y = quantize_per_tensor(X, 0.4, 1, dtype)
    p = qparams.per_tensor(0.4, 1, dtype)
    assert y.dtype == dtype
    assert y.qscheme() is qtensor.per_tensor_affine
    assert np.array_equal(y.int_repr(), affine.quantize(X, p))
    assert y.int_repr().dtype == dtype.storage


def test_ties_go_to_even_before_the_zero_point_is_added() -> None:
    x = np.array([0.25, 0.75, -0.25], np.float32)
    assert quantize_per_tensor(x, 0.5, 1, "quint8").int_repr().tolist() == [1, 3, 1]


def test_scale_and_zero_point_may_be_arrays() -> None:
    y = quantize_per_tensor(X, np.array(0.1, np.float32), np.array(3), qtensor.quint8)
    assert (y.q_scale(), y.q_zero_point()) == (float(np.float32(0.1)), 3)


def test_one_number_may_come_in_a_vector() -> None:
    """PyTorch's observers give one number in a vector."""
    y = quantize_per_tensor(X, [0.1], [3], qtensor.quint8)
    assert y.equal(quantize_per_tensor(X, 0.1, 3, qtensor.quint8))
    with pytest.raises(ShapeError, match=r"scale has shape \(2,\); wanted one number"):
        quantize_per_tensor(X, [0.1, 0.2], 3, qtensor.quint8)
    with pytest.raises(ShapeError, match=r"zero_point has shape \(0,\)"):
        _empty_affine_quantized(scale=0.1, zero_point=[], dtype="quint8")


def test_channels_have_scales_of_their_own() -> None:
    y = quantize_per_channel(X, [0.1, 0.2, 0.3], [0, 1, 2], 1, qtensor.qint8)
    for c in range(3):
        alone = quantize_per_tensor(X[:, c], (c + 1) / 10, c, qtensor.qint8)
        assert np.array_equal(y.int_repr()[:, c], alone.int_repr())
    assert y.qscheme() is qtensor.per_channel_affine
    assert y.q_per_channel_axis() == 1
    assert y.q_per_channel_zero_points().tolist() == [0, 1, 2]


def test_the_early_name_is_the_same_function() -> None:
    assert quantize_linear is quantize_per_tensor
    y = quantize_linear(X, scale=0.05, zero_point=0, dtype=qtensor.qint8)
    assert y.equal(quantize_per_tensor(X, 0.05, 0, qtensor.qint8))


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (X.astype(np.float64), "input has dtype float64; wanted float32"),
        (X.astype(np.float16), "float16"),
        (X.astype(np.int32), "int32"),
        ([1.0, 2.0], "input is a list"),
        (quantize_per_tensor(X, 0.1, 0, "quint8"), "input is a QTensor"),
    ],
)
def test_only_float32_arrays_are_quantized(x: object, said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        quantize_per_tensor(x, 0.1, 0, "quint8")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=said):
        quantize_per_channel(x, [0.1], [0], 0, "quint8")  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_a_scale_must_be_positive_and_finite(scale: float) -> None:
    with pytest.raises(ShapeError, match="scale: got"):
        quantize_per_tensor(X, scale, 0, "quint8")
    with pytest.raises(ShapeError, match="scale: got"):
        quantize_per_channel(X, [1, scale, 1], [0] * 3, 1, "quint8")


@pytest.mark.parametrize("zero_point", [-1, 256, 0.5])
def test_a_zero_point_must_be_a_integer(zero_point: float) -> None:
    with pytest.raises(ShapeError, match="zero_point: got"):
        quantize_per_tensor(X, 0.1, zero_point, "quint8")


@pytest.mark.parametrize("axis", [-1, 3])
def test_an_axis_must_be_there(axis: int) -> None:
    with pytest.raises(ShapeError, match=f"axis is {axis}; an array of rank 3 wants 0 to 2"):
        quantize_per_channel(X, [0.1] * 4, [0] * 4, axis, "quint8")


def test_channels_and_scales_must_be_as_many() -> None:
    with pytest.raises(ShapeError, match="has 3 channels; scale has 2"):
        quantize_per_channel(X, [0.1] * 2, [0] * 2, 1, "quint8")
    with pytest.raises(ShapeError, match=r"scale has shape \(3,\), zero_point \(2,\)"):
        quantize_per_channel(X, [0.1] * 3, [0] * 2, 1, "quint8")


def test_a_dtype_must_have_integers() -> None:
    with pytest.raises(UnsupportedError, match="float16"):
        quantize_per_tensor(X, 0.1, 0, "float16")
    with pytest.raises(QConfigError, match="quint9"):
        quantize_per_tensor(X, 0.1, 0, "quint9")


def test_empty_tensors_are_zeros_with_qparams() -> None:
    y = _empty_affine_quantized((2, 3), scale=0.5, zero_point=32, dtype=qtensor.qint8)
    assert y.int_repr().tolist() == [[32] * 3] * 2
    assert y.q_scale() == 0.5
    # as it is documented, without a size
    assert _empty_affine_quantized(scale=0.5, zero_point=32, dtype=qtensor.qint8).size() == (0,)
    z = _empty_per_channel_affine_quantized(
        [2, 3], scales=[1, 2], zero_points=[3, 4], axis=0, dtype="quint8"
    )
    assert isinstance(z, QTensor)
    assert z.int_repr().tolist() == [[3] * 3, [4] * 3]


def test_empty_tensors_need_a_size_that_fits() -> None:
    with pytest.raises(ShapeError, match="negative"):
        _empty_affine_quantized((-1,), dtype="quint8")
    with pytest.raises(ShapeError, match="2 scales"):
        _empty_per_channel_affine_quantized(
            [2, 3], scales=[1, 2], zero_points=[3, 4], axis=1, dtype="quint8"
        )
