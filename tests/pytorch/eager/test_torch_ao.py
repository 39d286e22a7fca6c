"""Models and QConfigs that hold torch.ao's classes are taken as they are."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import QConfigError
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from onnxq.pytorch import (
    DeQuantStub,
    FloatFunctional,
    QuantStub,
    disable_observer,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.eager.convert import convert
from onnxq.pytorch.eager.prepare import own_module
from onnxq.pytorch.modules.torch_qconfig import own_entry
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigDynamic, float16_dynamic_qconfig
from onnxq.qconfig import get_default_qat_qconfig as own_qat_qconfig
from onnxq.qconfig import get_default_qconfig as own_qconfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.ao import quantization
    from torch.ao.nn import intrinsic
    from torch.ao.nn.quantized import FloatFunctional as TheirFunctional

theirs: Any = quantization  # untyped
theirs_fused: Any = intrinsic
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Please use quant_min"),
]
X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A model with stubs, as existing code writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = theirs.QuantStub(), theirs.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU()
        self.add = TheirFunctional()

    def forward(self, x: Tensor) -> Any:
        x = self.quant(x)
        return self.dequant(self.add.add(self.relu(self.bn(self.conv(x))), x))


@pytest.mark.filterwarnings("ignore:Default qconfig of oneDNN:UserWarning")  # without VNNI
@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack", "x86", "onednn"])
def test_the_default_qconfigs_of_backends_are_onnxqs(backend: str) -> None:
    assert own_entry(theirs.get_default_qconfig(backend), "") == own_qconfig(backend)
    own = own_entry(theirs.get_default_qat_qconfig(backend, version=0), "")
    assert own == own_qat_qconfig(backend)


def test_fused_fake_quantize_stands_for_the_plain_one() -> None:
    own = own_entry(theirs.get_default_qat_qconfig("fbgemm", version=1), "")
    assert isinstance(own, QConfig)
    assert own.activation == FakeQuantSpec(
        MovingAverageMinMaxObserver.with_args(quant_min=0, quant_max=255, reduce_range=True)
    )


@pytest.mark.parametrize(
    ("observer", "own"),
    [
        (theirs.MinMaxObserver, MinMaxObserver.with_args()),
        (
            theirs.HistogramObserver.with_args(bins=512, reduce_range=True),
            HistogramObserver.with_args(bins=512, reduce_range=True),
        ),
        (
            theirs.PerChannelMinMaxObserver.with_args(
                dtype=torch.qint8, qscheme=torch.per_channel_symmetric
            ).with_args(ch_axis=1),
            PerChannelMinMaxObserver.with_args(
                dtype="qint8", qscheme="per_channel_symmetric", ch_axis=1
            ),
        ),
        (
            theirs.FakeQuantize.with_args(
                observer=theirs.MovingAveragePerChannelMinMaxObserver.with_args(
                    averaging_constant=0.5
                ),
                quant_min=-8,
                quant_max=7,
                dtype=torch.qint8,
                qscheme=torch.per_channel_symmetric,
            ),
            FakeQuantSpec(
                MovingAveragePerChannelMinMaxObserver.with_args(
                    averaging_constant=0.5,
                    quant_min=-8,
                    quant_max=7,
                    dtype="qint8",
                    qscheme="per_channel_symmetric",
                )
            ),
        ),
    ],
    ids=["class", "arguments", "arguments twice", "fake quantize"],
)
def test_observers_are_told_by_their_names(observer: Any, own: Any) -> None:
    entry = own_entry(theirs.QConfig(activation=observer, weight=observer), "")
    assert entry == QConfig(own, own)


def test_dynamic_qconfigs() -> None:
    assert isinstance(own_entry(theirs.default_dynamic_qconfig, ""), QConfigDynamic)
    assert own_entry(theirs.float16_dynamic_qconfig, "") == float16_dynamic_qconfig


def test_an_observer_without_counterpart_is_named() -> None:
    foreign = theirs.QConfig(theirs.ReuseInputObserver, theirs.MinMaxObserver)
    with pytest.raises(QConfigError, match="'fc': activation: torch's ReuseInputObserver has no"):
        own_entry(foreign, "'fc'")


def test_stubs_and_fused_modules_become_onnxqs_with_their_hooks() -> None:
    stub, seen = theirs.QuantStub(), []
    stub.register_forward_hook(lambda *_: seen.append(1))
    own = own_module(stub)
    assert type(own) is QuantStub
    own(X)
    assert seen == [1]
    module = theirs_fused.ConvReLU2d(nn.Conv2d(3, 3, 1), nn.ReLU())
    made: Any = own_module(module)
    assert type(made).__module__.startswith("onnxq.")
    assert made[0] is module[0]
    assert own_module(made) is made


def test_a_model_of_torch_ao_trains_and_converts() -> None:
    torch.manual_seed(0)
    net: Any = theirs.fuse_modules_qat(Net().train(), ["conv", "bn", "relu"])
    net.qconfig = theirs.get_default_qat_qconfig("fbgemm")
    made: Any = prepare_qat(net)
    assert type(made.conv) is fused.ConvBnReLU2d
    assert type(made.quant) is QuantStub
    assert type(made.dequant) is DeQuantStub
    assert type(made.add) is FloatFunctional
    made(X)
    made.eval()(X)
    made.apply(disable_observer)
    step = made.add.activation_post_process.scale  # of a sum: convert raises its last digits
    assert torch.equal((convert(made)(X) / step).round(), (made(X) / step).round())
    assert type(net.quant) is theirs.QuantStub, "the model itself is left as it is"


def test_a_model_of_torch_ao_is_observed_and_converts() -> None:
    torch.manual_seed(0)
    net: Any = theirs.fuse_modules(Net().eval(), ["conv", "bn", "relu"])
    net.qconfig = theirs.get_default_qconfig("qnnpack")
    made = prepare(net)
    expected = made(X)
    assert torch.allclose(convert(made)(X), expected, atol=0.1)


def trained_by_torch() -> tuple[Any, Any]:
    """(the fused model, its QAT form after three batches in torch)."""
    torch.manual_seed(0)
    net: Any = theirs.fuse_modules_qat(Net().train(), ["conv", "bn", "relu"])
    net.qconfig = theirs.get_default_qat_qconfig("fbgemm", version=0)
    made = theirs.prepare_qat(net)
    for _ in range(3):
        made(X)
    return net, made


def test_a_checkpoint_of_torch_ao_loads_and_converts() -> None:
    net, foreign = trained_by_torch()
    own: Any = prepare_qat(net)
    own.load_state_dict(foreign.state_dict())  # every key has its place
    for model in (own.apply(disable_observer), foreign.apply(theirs.disable_observer)):
        model.eval()
    step = float(own.add.activation_post_process.scale)
    result = own(X)
    differing = (result - foreign(X)).abs() > step / 2
    assert int(differing.sum()) <= differing.numel() // 500  # the bias is rounded here
    converted = convert(own)(X)  # the scale of the sum is raised by some millionths of it
    assert torch.allclose(converted, result, rtol=1e-4, atol=0.0)


def test_training_goes_on_from_a_checkpoint_of_torch_ao() -> None:
    net, foreign = trained_by_torch()
    own: Any = prepare_qat(net)
    own.load_state_dict(foreign.state_dict())
    other = X * 3
    own(other)
    foreign(other)
    for name in ("quant.activation_post_process", "conv.weight_fake_quant"):
        ours, their = own.get_submodule(name).scale, foreign.get_submodule(name).scale
        assert torch.allclose(ours.reshape(-1), their, rtol=1e-6)


def test_a_checkpoint_of_an_untrained_model_of_torch_ao_has_seen_nothing() -> None:
    net, _ = trained_by_torch()
    own: Any = prepare_qat(net)
    own.load_state_dict(theirs.prepare_qat(net).state_dict())
    assert not own.quant.activation_post_process.has_observed
