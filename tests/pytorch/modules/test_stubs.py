from __future__ import annotations

import torch
from torch import nn

from onnxq.pytorch import DeQuantStub, QuantStub, QuantWrapper
from onnxq.qconfig import default_qconfig

X = torch.arange(6.0)


def test_stubs_return_their_input_and_keep_a_qconfig() -> None:
    for kind in (QuantStub, DeQuantStub):
        assert kind()(X) is X
        assert not hasattr(kind(), "qconfig")
        assert kind(default_qconfig).qconfig is default_qconfig


def test_a_wrapper_has_torchs_names_and_the_modules_qconfig_and_mode() -> None:
    module = nn.ReLU().eval()
    module.qconfig = default_qconfig  # type: ignore[assignment]  # modules take any attribute
    wrapper = QuantWrapper(module)
    assert [name for name, _ in wrapper.named_children()] == ["quant", "dequant", "module"]
    assert wrapper.quant.qconfig is default_qconfig
    assert not wrapper.training
    assert torch.equal(wrapper(X), X)
