from __future__ import annotations

import numpy as np
import torch

from onnxq.dtypes import INT8, UINT8
from onnxq.pytorch.nn.quantized.bias_codes import bias_scale
from onnxq.qparams import MIN_SCALE, PerChannel, QParams, per_tensor, sum_scale


def test_the_scale_of_a_bias_is_that_of_the_sums() -> None:
    steps = np.array([0.3, 7.0, MIN_SCALE, 1e-20], np.float32)
    w = QParams(steps, np.zeros(4, np.int8), INT8, PerChannel(0))
    for step in (0.1, 1e-20, float(MIN_SCALE), 3.0):
        x = per_tensor(step, 0, UINT8)
        ours = bias_scale(torch.from_numpy(x.scale.copy()), torch.from_numpy(steps))
        assert np.array_equal(ours.numpy(), sum_scale(x, w))
