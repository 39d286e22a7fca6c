"""The torch twins of onnxq.qparams, which training differentiates through, give its numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq.affine import quantize
from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.pytorch.nn.quantized.bias_integers import bias_integers, bias_scale, scale_for_int32_bias
from onnxq.qparams import MIN_SCALE, PerChannel, PerTensor, QParams, per_tensor, sum_scale
from onnxq.qparams import scale_for_int32_bias as raised_in_numpy

CHANNELS = 12


def test_the_scale_of_a_bias_is_that_of_the_sums() -> None:
    steps = np.array([0.3, 7.0, MIN_SCALE, 1e-20], np.float32)
    w = QParams(steps, np.zeros(4, np.int8), INT8, PerChannel(0))
    for step in (0.1, 1e-20, float(MIN_SCALE), 3.0):
        x = per_tensor(step, 0, UINT8)
        ours = bias_scale(torch.from_numpy(x.scale.copy()), torch.from_numpy(steps))
        assert np.array_equal(ours.numpy(), sum_scale(x, w))


@pytest.mark.parametrize("sizes", [(), (CHANNELS,), (CHANNELS // 3,)], ids=str)
@pytest.mark.parametrize("largest", [1.0, 1e6, 1e30])
def test_scales_are_increased_for_a_bias_as_in_numpy(
    sizes: tuple[int, ...], largest: float
) -> None:
    rng = np.random.default_rng(3)
    w = np.asarray(rng.uniform(1e-6, 1e-2, sizes), np.float32)
    bias = (rng.standard_normal(CHANNELS) * largest).astype(np.float32)
    x = np.asarray(0.02, np.float32)
    ours = scale_for_int32_bias(*(torch.from_numpy(one) for one in (w, bias, x)))
    assert np.array_equal(ours.numpy(), raised_in_numpy(w, bias, x))


@pytest.mark.parametrize("sizes", [(), (CHANNELS,)], ids=str)
def test_integers_of_a_bias_are_those_of_quantize(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    scale = np.asarray(rng.uniform(1e-9, 1e-3, sizes), np.float32)
    granularity = PerChannel(0) if sizes else PerTensor()
    qparams = QParams(scale, np.zeros(sizes, np.int32), INT32, granularity)
    bias = rng.standard_normal(CHANNELS).astype(np.float32)
    ours = bias_integers(torch.from_numpy(bias), torch.from_numpy(scale))
    assert np.array_equal(ours.numpy(), quantize(bias, qparams))
