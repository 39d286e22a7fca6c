from __future__ import annotations

import torch

from onnxq.pytorch.tensor_quant import fake_affine_tensor_quant


def test_whole_numbers_of_the_whole_range_stay() -> None:
    x = torch.tensor([-128.0, -101, 0, 2, 93, 127])
    assert torch.allclose(fake_affine_tensor_quant(x, x.min(), x.max()), x)


def test_the_gradient_stops_beyond_min_and_max() -> None:
    x = torch.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
    fake_affine_tensor_quant(x, torch.tensor(-1.0), torch.tensor(1.0), 8).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 1, 0]
