from __future__ import annotations

import pytest
import torch

from onnxq.pytorch.tensor_quant import QuantDescriptor, QuantTypeError, QuantValueError, scaled_e4m3


def test_values_keep_three_bits_of_mantissa() -> None:
    x = torch.tensor([1.0, 1.2, -1.8, 500.0, 0.0])
    assert scaled_e4m3(x, None).tolist() == [1, 1.25, -1.75, 448, 0]


def test_amax_is_the_largest_value() -> None:
    x = torch.tensor([2.0, -1.8])
    got = scaled_e4m3(x, torch.tensor(2.0))
    assert torch.allclose(got, torch.tensor([2.0, -1.8571]), atol=1e-4)
    assert scaled_e4m3(torch.tensor([0.0]), torch.tensor(0.0)).tolist() == [0]


def test_the_gradient_stops_beyond_amax() -> None:
    x = torch.tensor([0.5, 3.0], requires_grad=True)
    scaled_e4m3(x, torch.tensor(1.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [1, 0]


def test_other_floats_and_descriptors_of_float8_are_refused() -> None:
    with pytest.raises(QuantValueError, match="E4M3 alone"):
        scaled_e4m3(torch.ones(1), None, 5, 2)
    with pytest.raises(QuantTypeError, match="scaled_e4m3"):
        QuantDescriptor(num_bits=(4, 3))  # type: ignore[arg-type]
