"""QConfigs of torch's form become onnxq's; those that torch.ao made are in eager/test_torch_ao."""

from __future__ import annotations

from torch import nn

from onnxq import observers
from onnxq.pytorch.modules.torch_qconfig import own_part
from onnxq.pytorch.quantization.fake_quantize import FakeQuantize
from onnxq.pytorch.quantization.observer import MinMaxObserver, NoopObserver
from onnxq.qconfig import FakeQuantSpec


def test_makers_become_the_specs_of_their_names() -> None:
    wanted = observers.MinMaxObserver.with_args(reduce_range=True)
    assert own_part(MinMaxObserver.with_args(reduce_range=True), "") == wanted
    fake = FakeQuantize.with_args(observer=MinMaxObserver, reduce_range=True)
    assert own_part(fake, "") == FakeQuantSpec(wanted)
    assert own_part(MinMaxObserver, "") == observers.MinMaxObserver.with_args()


def test_an_identity_observes_nothing() -> None:
    assert own_part(nn.Identity, "") == own_part(NoopObserver, "")
