from __future__ import annotations

import numpy as np
import pytest

from onnxq import functional
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional.calls import call, check_rank, per_axis, result_qparams
from onnxq.qtensor import QTensor, quantize_per_channel, quantize_per_tensor

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
Q = quantize_per_tensor(X, 0.05, 100, "quint8")
CHANNELS = quantize_per_channel(X, [0.1] * 3, [100] * 3, 1, "quint8")
W = quantize_per_tensor(X[:, :, :2, :2], 0.05, 0, "qint8")

FUNCTIONS = {
    "relu": lambda x: functional.relu(x),
    "relu_": lambda x: functional.relu_(x),
    "elu": lambda x: functional.elu(x, 0.1, 3),
    "hardsigmoid": lambda x: functional.hardsigmoid(x),
    "hardswish": lambda x: functional.hardswish(x, 0.1, 3),
    "hardtanh": lambda x: functional.hardtanh(x),
    "add": lambda x: functional.add(x, x),
    "mul": lambda x: functional.mul(x, x),
    "cat": lambda x: functional.cat([x]),
    "max_pool2d": lambda x: functional.max_pool2d(x, 2),
    "avg_pool2d": lambda x: functional.avg_pool2d(x, 2),
    "avg_pool3d": lambda x: functional.avg_pool3d(x, 2),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, 2),
    "adaptive_avg_pool3d": lambda x: functional.adaptive_avg_pool3d(x, 2),
    "celu": lambda x: functional.celu(x, 0.1, 3),
    "clamp": lambda x: functional.clamp(x, -1, 1),
    "leaky_relu": lambda x: functional.leaky_relu(x),
    "max_pool1d": lambda x: functional.max_pool1d(x, 2),
    "threshold": lambda x: functional.threshold(x, 0, 1),
    "interpolate": lambda x: functional.interpolate(x, 2),
    "upsample": lambda x: functional.upsample(x, 2),
    "upsample_bilinear": lambda x: functional.upsample_bilinear(x, 2),
    "upsample_nearest": lambda x: functional.upsample_nearest(x, 2),
    "conv1d": lambda x: functional.conv1d(x, W, None),
    "conv2d": lambda x: functional.conv2d(x, W, None),
    "conv3d": lambda x: functional.conv3d(x, W, None),
    "linear": lambda x: functional.linear(x, W),
}


def test_every_function_is_here() -> None:
    assert set(FUNCTIONS) == set(functional.__all__)
    assert all(getattr(functional, name).__doc__ for name in functional.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_are_refused_with_the_call_that_quantizes_them(name: str) -> None:
    with pytest.raises(ShapeError, match=r"is a ndarray; wanted a QTensor.*quantize_per_tensor"):
        FUNCTIONS[name](X)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations_quantized_per_channel_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"PerChannel\(axis=1\); wanted per-tensor"):
        FUNCTIONS[name](CHANNELS)


def test_a_call_runs_the_kernel_of_an_operator() -> None:
    y = call("Relu", [Q], Q.qparams)
    assert isinstance(y, QTensor)
    assert np.array_equal(y.int_repr(), np.maximum(Q.int_repr(), 100))


def test_an_operator_without_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="NoSuchOp: onnxq has no integer kernel"):
        call("NoSuchOp", [Q], Q.qparams)


def test_qparams_of_a_result_are_the_operands_where_not_given() -> None:
    assert result_qparams(Q, None, None) == Q.qparams
    assert result_qparams(Q, 0.1, None).zero_point == 100
    with pytest.raises(ShapeError, match="zero_point: got 300"):
        result_qparams(Q, 0.1, 300)
    with pytest.raises(ShapeError, match="scale: got"):
        result_qparams(Q, 0.0, 3)


def test_one_number_stands_for_all_axes() -> None:
    assert per_axis("f", "stride", 2, 3) == per_axis("f", "stride", (2,), 3) == [2, 2, 2]
    assert per_axis("f", "stride", [1, 2], 2) == [1, 2]
    with pytest.raises(ShapeError, match=r"f: stride is \(1, 2\); wanted one number, or 3"):
        per_axis("f", "stride", (1, 2), 3)


def test_a_rank_is_wanted_in_words() -> None:
    with pytest.raises(ShapeError, match=r"f: input has shape \(2, 3, 4, 5\); wanted \(N, C\)"):
        check_rank("f", Q, (2,), "(N, C)")
