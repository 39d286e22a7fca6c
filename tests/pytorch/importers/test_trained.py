"""QAT models of torch.ao are converted with the numbers that they were trained with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.ao import quantization as tq

from onnxq.pytorch.importers.notes import collected
from onnxq.pytorch.importers.trained import convert_as_trained
from tests.torch_ao_models import one_signed, qat

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:(?s).*deprecated"),
    pytest.mark.filterwarnings("ignore:quantized tensor creation"),
    pytest.mark.filterwarnings("ignore:Please use quant_min"),
]


def test_channels_that_were_trained_asymmetric_are_named() -> None:
    model = one_signed()
    odd = torch.nonzero(model.c1.weight_fake_quant.zero_point).reshape(-1).tolist()
    assert set(odd) >= {2, 3}
    with collected() as notes:
        made: Any = convert_as_trained(model)
    assert any("'c1': channels 2, 3" in text and "known bug of torch" in text for text in notes)
    weight = made.c1.weight()
    assert not weight.q_per_channel_zero_points().any()
    trained = model.c1.weight_fake_quant(model.c1.weight)
    step = weight.q_per_channel_scales().reshape(-1, 1, 1, 1)
    assert ((weight.dequantize() - trained).abs() <= 0.5001 * step).all()


def test_symmetric_channels_keep_the_trained_scale_and_integers() -> None:
    model = one_signed()
    with collected():
        made: Any = convert_as_trained(model)
    weight = made.c1.weight()
    fake = model.c1.weight_fake_quant
    kept = fake.zero_point == 0
    torch.testing.assert_close(weight.q_per_channel_scales().float()[kept], fake.scale[kept])
    trained = fake(model.c1.weight).detach()
    torch.testing.assert_close(weight.dequantize()[kept], trained[kept], rtol=1e-6, atol=0)


def test_integers_of_fewer_bits_stay_within_them() -> None:
    four = tq.FakeQuantize.with_args(
        observer=tq.MovingAveragePerChannelMinMaxObserver,
        quant_min=-8, quant_max=7, dtype=torch.qint8, qscheme=torch.per_channel_symmetric,
    )  # fmt: skip
    plain = tq.FakeQuantize.with_args(
        observer=tq.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
    )
    model = qat(qconfig=tq.QConfig(activation=plain, weight=four))
    with collected():
        made: Any = convert_as_trained(model)
    integers = made.c1.weight().int_repr()
    assert integers.min() >= -8
    assert integers.max() <= 7


def test_the_prepared_model_is_left_as_it_was() -> None:
    model = qat()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with collected():
        convert_as_trained(model)
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
