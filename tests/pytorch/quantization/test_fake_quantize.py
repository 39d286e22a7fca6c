from __future__ import annotations

import torch

from onnxq import pytorch
from onnxq.pytorch.quantization import fake_quantize
from onnxq.pytorch.quantization.fake_quantize import FakeQuantize
from onnxq.pytorch.quantization.observer import MovingAverageMinMaxObserver, default_weight_observer


def test_it_rounds_as_that_of_onnxq() -> None:
    x = torch.linspace(-1, 3, 50)
    ours, theirs = FakeQuantize(MovingAverageMinMaxObserver), pytorch.FakeQuantize()
    assert torch.equal(ours(x), theirs(x))
    assert not torch.equal(ours(x), x)


def test_what_prepare_made_is_an_instance() -> None:
    assert isinstance(pytorch.FakeQuantize(), FakeQuantize)
    assert not isinstance(torch.nn.Identity(), FakeQuantize)


def test_its_makers_make_it() -> None:
    made = FakeQuantize.with_args(observer=default_weight_observer, quant_min=-7)(quant_max=7)
    assert (made.quant_min, made.quant_max) == (-7, 7)
    assert made.activation_post_process.quant_min == -7
    for name in vars(fake_quantize)["__all__"]:
        if name.startswith("default_"):
            assert isinstance(getattr(fake_quantize, name)(), FakeQuantize)
