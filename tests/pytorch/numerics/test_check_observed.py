"""NaN and infinite values are named when a model is asked, and when it is converted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxq.errors import CalibrationError
from onnxq.pytorch import check_observed_values, convert, forget_left_out, prepare_qat

X = torch.randn(4, 3)


def bad() -> torch.Tensor:
    x = X.clone()
    x[1, 2] = float("nan")
    return x


def test_an_example_input_that_is_not_finite_is_refused_at_once() -> None:
    with pytest.raises(CalibrationError, match=r"'.*': FakeQuantize: 1 of the batches"):
        prepare_qat(nn.Sequential(nn.Linear(3, 2)), inputs=bad())


def test_a_batch_in_training_is_named_at_convert_unless_it_is_accepted() -> None:
    model = prepare_qat(nn.Sequential(nn.Linear(3, 2)), inputs=X)
    check_observed_values(model)
    before = {name: kept.clone() for name, kept in model.named_buffers() if "scale" in name}
    model(bad())
    with pytest.raises(CalibrationError, match=r"fake_quant': .* NaN or infinite"):
        convert(model.eval())
    model.apply(forget_left_out)
    convert(model.eval())
    for name, kept in before.items():
        assert torch.equal(model.get_buffer(name), kept), name
