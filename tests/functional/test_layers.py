from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional import conv1d, conv2d, conv3d, linear
from onnxq.qparams import per_tensor
from onnxq.qtensor import QTensor, quantize_per_channel, quantize_per_tensor, quint8

if TYPE_CHECKING:
    import numpy.typing as npt

RNG = np.random.default_rng(0)


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


X = quantize_per_tensor(normal(2, 4, 9, 8), 0.03, 100, "quint8")
W = quantize_per_tensor(normal(6, 4, 3, 3), 0.02, 0, "qint8")
CHANNELS = quantize_per_channel(normal(6, 4, 3, 3), RNG.uniform(0.01, 0.03, 6), [0] * 6, 0, "qint8")
B = normal(6)
MATRIX = quantize_per_tensor(normal(5, 8), 0.02, 0, "qint8")


def exact(x: QTensor, w: QTensor, bias: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Real numbers of a convolution without padding or strides, in float64."""
    real_x, real_w = x.dequantize().astype(np.float64), w.dequantize().astype(np.float64)
    taps = np.lib.stride_tricks.sliding_window_view(real_x, w.size()[2:], axis=(2, 3))
    total: npt.NDArray[np.float64] = np.einsum("nchwij,ocij->nohw", taps, real_w)
    return np.asarray(total + bias.reshape(-1, 1, 1))


@pytest.mark.parametrize("weight", [W, CHANNELS], ids=["per tensor", "per channel"])
def test_a_convolution_is_within_half_an_lsb(weight: QTensor) -> None:
    y = conv2d(X, weight, B, scale=0.2, zero_point=128)
    assert y.qparams == per_tensor(0.2, 128, quint8)
    real = np.clip(exact(X, weight, B), -128 * 0.2, 127 * 0.2)
    # half an LSB of the result, and half of the bias's
    assert np.abs(y.dequantize() - real).max() <= 0.1001 + 0.03 * 0.03


def test_a_bias_of_zeros_is_no_bias() -> None:
    zeros = np.zeros(6, np.float32)
    assert conv2d(X, W, zeros, scale=0.2).equal(conv2d(X, W, None, scale=0.2))


def test_steps_are_numbers_or_one_per_axis() -> None:
    y = conv2d(X, W, B, (2, 1), (1, 0), (1, 2), scale=0.2)
    assert y.size() == (2, 6, 5, 4)
    assert conv2d(X, W, B, 2, 1).size() == (2, 6, 5, 4)


def test_ranks_1_and_3_are_rank_2_with_axes_of_one() -> None:
    x, w = X[:, :, 0], quantize_per_tensor(normal(6, 2, 3), 0.02, 0, "qint8")
    y = conv1d(x, w, B, 2, 1, groups=2, scale=0.2, zero_point=128)
    tall = conv2d(
        x[:, :, None], w[:, :, None], B, (1, 2), (0, 1), groups=2, scale=0.2, zero_point=128
    )
    assert y.equal(tall[:, :, 0])
    x, w = x[:, :, None, None], w[:, :, None, None]
    deep = conv3d(x, w, B, (1, 1, 2), (0, 0, 1), 1, 2, scale=0.2, zero_point=128)
    assert y.equal(deep[:, :, 0, 0])


def test_a_linear_layer_takes_any_leading_axes() -> None:
    bias = normal(5)
    y = linear(X, MATRIX, bias, 0.2, 128)
    real = X.dequantize().astype(np.float64) @ MATRIX.dequantize().T.astype(np.float64) + bias
    assert y.size() == (2, 4, 9, 5)
    assert np.abs(y.dequantize() - np.clip(real, -128 * 0.2, 127 * 0.2)).max() <= 0.101
    assert linear(X[0, 0], MATRIX, bias, 0.2, 128).equal(y[0, 0])
    assert linear(X[:0], MATRIX, bias).size() == (0, 4, 9, 5)


def test_a_linear_layer_has_the_inputs_qparams_by_default() -> None:
    assert linear(X, MATRIX).qparams == X.qparams
    assert linear(X, MATRIX, scale=0.2).q_zero_point() == 100


@pytest.mark.parametrize(
    ("x", "w", "said"),
    [
        (quantize_per_tensor(X.dequantize(), 0.03, 0, "qint8"), W, "input is int8, weight int8"),
        (X, quantize_per_tensor(W.dequantize(), 0.02, 9, "quint8"), "input is uint8, weight uint8"),
        (X, quantize_per_channel(W.dequantize(), [1] * 4, [0] * 4, 1, "qint8"), "axis 0"),
    ],
)
def test_types_are_quint8_and_qint8(x: QTensor, w: QTensor, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        conv2d(x, w, None)


def test_options_that_torch_has_not_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="padding_mode is 'reflect'; wanted 'zeros'"):
        conv2d(X, W, B, padding_mode="reflect")
    with pytest.raises(UnsupportedError, match="dtype is qint8; results are quint8"):
        conv2d(X, W, B, dtype="qint8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input": X[0]}, r"wanted \(N, C, H, W\)"),
        ({"weight": X}, "weight uint8"),
        ({"weight": X.dequantize()}, "weight is a ndarray"),
        ({"bias": B[:3]}, r"bias has shape \(3,\)"),
        ({"bias": B.astype(np.float64)}, "float64"),
        ({"bias": quantize_per_tensor(B, 0.1, 0, "qint32")}, "input is a QTensor"),
        ({"groups": 2}, r"group 2; wanted 4 = 4 \* group"),
        ({"groups": 0}, "wanted 1 or more"),
        ({"stride": 0}, "wanted 1 or more"),
        ({"stride": (1, 2, 3)}, "wanted one number, or 2"),
        ({"dilation": 9}, "do not fit"),
        ({"zero_point": 300}, "zero_point: got 300"),
        ({"scale": 0.0}, "scale: got"),
    ],
)
def test_convolutions_that_do_not_fit_are_refused(change: dict[str, object], said: str) -> None:
    arguments: dict[str, object] = {"input": X, "weight": W, "bias": B, **change}
    with pytest.raises((ShapeError, UnsupportedError), match=said):
        conv2d(**arguments)  # type: ignore[arg-type]


def test_a_bias_beyond_int32_is_refused() -> None:
    for bias in (np.full(6, 2e6, np.float32), np.full(6, np.nan, np.float32)):
        with pytest.raises(UnsupportedError, match="Raise the weight's scale"):
            conv2d(X, W, bias)


def test_matrices_that_do_not_fit_are_refused() -> None:
    for x, w in [(X, MATRIX[:, :5]), (X[0, 0, 0], MATRIX), (X, W)]:
        with pytest.raises(ShapeError, match=r"wanted \(\.\.\., in\) and \(out, in\)"):
            linear(x, w)
