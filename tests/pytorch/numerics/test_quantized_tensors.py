from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.pytorch.numerics.integer_types import from_torch, to_torch
from onnxq.qparams import PerChannel
from onnxq.qtensor import quantize_per_tensor

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.quantize_per_tensor"
)  # to be removed, it says

X = torch.tensor([[-1.0, 0.25], [0.5, 3.0]])


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32], ids=str)
def test_a_tensor_with_one_scale_comes_back_as_it_was(dtype: torch.dtype) -> None:
    t = torch.quantize_per_tensor(X, 0.125, 3, dtype)
    assert from_torch(t).int_repr().tolist() == t.int_repr().tolist()
    back = to_torch(from_torch(t))
    assert back.dtype == dtype
    assert torch.equal(back, t)


def test_scales_per_channel_and_their_axis_are_kept() -> None:
    scales, zero_points = torch.tensor([0.5, 0.25]).double(), torch.tensor([1, -2])
    t = torch.quantize_per_channel(X, scales, zero_points, 1, torch.qint8)
    q = from_torch(t)
    assert q.qparams.granularity == PerChannel(1)
    np.testing.assert_array_equal(q.dequantize(), t.dequantize().numpy())
    back = to_torch(q)
    assert back.q_per_channel_axis() == 1
    assert torch.equal(back, t)


def test_other_tensors_are_refused_with_the_remedy() -> None:
    with pytest.raises(ShapeError, match="quantize_per_tensor"):
        from_torch(X)
    ends = torch.ones(2), torch.zeros(2)
    of_floats = torch.quantize_per_channel(X, *ends, 0, torch.quint8)
    with pytest.raises(UnsupportedError, match="floats"):
        from_torch(of_floats)
    with pytest.raises(UnsupportedError, match="torch has"):
        to_torch(quantize_per_tensor(X.numpy(), 0.1, 0, "int16"))
