from __future__ import annotations

import copy
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.errors import ModelError, UnsupportedError
from onnxq.pytorch import DeQuantStub, FakeQuantize
from onnxq.pytorch.nn import qat
from onnxq.pytorch.train.sources import watch_first_pass
from onnxq.qconfig import onnxq_default_qat_qconfig

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """Two quantized tensors, what stands between, and a layer."""

    def __init__(self, between: Callable[[Tensor, Tensor], Tensor] = lambda x, _: x) -> None:
        super().__init__()
        self.first, self.second = FakeQuantize(), FakeQuantize()
        self.conv = qat.Conv2d(4, 4, 1, qconfig=onnxq_default_qat_qconfig)
        self.between = between

    def forward(self, x: Tensor) -> Any:
        return self.conv(self.between(self.first(x), self.second(x)))


def source(between: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Whether the layer's source is `first`."""
    net = Net(between)
    watch_first_pass(net)
    net(X)
    return net.conv.input_fake_quant is net.first


MOVING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "itself": lambda x, _: x,
    "relu": lambda x, _: F.relu(x),
    "relu_": lambda x, _: torch.relu_(x.clone()),
    "max_pool2d": lambda x, _: F.max_pool2d(x, 2),
    "adaptive_max_pool2d": lambda x, _: F.adaptive_max_pool2d(x, 2),
    "dropout": lambda x, _: F.dropout(x, 0.1),
    "view": lambda x, _: x.flatten(1).view(2, 4, 8, 8).reshape(2, 4, 4, 16),
    "permute": lambda x, _: x.permute(0, 1, 3, 2).transpose(2, 3).contiguous(),
    "getitem": lambda x, _: x[:, :, 1:],
    "cat": lambda x, _: torch.cat([x[:, :2], x[:, 2:]], 1),
    "chunk": lambda x, _: torch.cat(x.chunk(2, 1), 1),
    "pad": lambda x, _: F.pad(x, (1, 1)),
    "nearest": lambda x, _: F.interpolate(x, scale_factor=2),
    "mT": lambda x, _: x.mT,
    "setitem": lambda x, _: assigned(x, 0.0),
    "modules": lambda x, _: nn.Sequential(nn.MaxPool2d(2), nn.ReLU(inplace=True), nn.Identity())(x),
}


def max_pooled(x: Tensor, _: Tensor) -> Tensor:
    return F.max_pool2d(x, 2)


def in_place(x: Tensor, _: Tensor) -> Tensor:
    return F.relu(x, inplace=True)


def assigned(x: Tensor, value: Tensor | float) -> Tensor:
    x = x.clone()
    x[:, :2] = value
    return x


COMPUTING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "torch.Tensor.mul": lambda x, _: x * 2,
    "torch.Tensor.add": lambda x, y: x + y,
    "torch.Tensor.add_": lambda x, y: x.clone().add_(y),
    "torch.cat of tensors with different scales": lambda x, y: torch.cat([x, y], 0),
    "torch.nn.functional.pad": lambda x, _: F.pad(x, (1, 1), value=0.3),
    "torch.Tensor.__setitem__ of tensors with different scales": lambda x, y: assigned(x, y[:, :2]),
    "an input of the model": lambda *_: X,
}


@pytest.mark.parametrize("name", MOVING)
def test_what_moves_values_hands_the_source_on(name: str) -> None:
    assert source(MOVING[name])


@pytest.mark.parametrize("name", COMPUTING)
def test_what_computes_values_is_named(name: str) -> None:
    wanted = re.escape(f"'conv' (Conv2d): its input, from {name}")
    with pytest.raises(ModelError, match=wanted):
        source(COMPUTING[name])


def test_a_copy_and_a_pickled_model_find_their_own_sources() -> None:
    net = Net(max_pooled)
    watch_first_pass(net)
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        made(X)
        assert made.conv.input_fake_quant is made.first
        again = copy.deepcopy(made)
        assert again.conv.input_fake_quant is again.first
    assert net.conv.input_fake_quant is None


def test_nothing_is_left_after_the_first_pass() -> None:
    net = Net()
    watch_first_pass(net)
    net(X)
    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks


def test_nothing_is_left_of_a_pass_that_fails_and_the_next_is_watched() -> None:
    net = Net()
    watch_first_pass(net)
    with pytest.raises(RuntimeError):
        net(X[:, :3])
    assert not nn.modules.module._global_forward_hooks
    net(X)
    assert net.conv.input_fake_quant is net.first


def test_layers_that_a_pass_did_not_run_are_waited_for() -> None:
    class Two(Net):
        def __init__(self) -> None:
            super().__init__()
            self.rare = copy.deepcopy(self.conv)

        def forward(self, x: Tensor, rare: bool = False) -> Any:
            x = self.first(x)
            return self.rare(x) if rare else self.conv(x)

    net = Two()
    watch_first_pass(net)
    net(X)
    assert net.rare.input_fake_quant is None
    net(X, rare=True)
    assert net.rare.input_fake_quant is net.first
    assert not net._forward_hooks


def test_a_layer_called_twice_has_one_source() -> None:
    class Twice(Net):
        def forward(self, x: Tensor) -> Any:
            return self.conv(self.first(x)) + self.conv(self.second(x))

    net = Twice()
    watch_first_pass(net)
    with pytest.raises(
        ModelError, match=r"'conv' .Conv2d. is called more than once.*'first'.*'sec"
    ):
        net(X)


def test_a_layer_called_twice_on_one_tensor_is_fine() -> None:
    class Twice(Net):
        def forward(self, x: Tensor) -> Any:
            x = self.first(x)
            return self.conv(x) + self.conv(x.relu())

    net = Twice()
    watch_first_pass(net)
    net(X)
    assert net.conv.input_fake_quant is net.first


def test_what_a_dequant_stub_returns_is_float_and_what_it_takes_is_not() -> None:
    class Both(Net):
        def __init__(self, layer_in_float: bool) -> None:
            super().__init__()
            self.dequant, self.layer_in_float = DeQuantStub(), layer_in_float

        def forward(self, x: Tensor) -> Any:
            integers = self.first(x)
            real = self.dequant(integers)
            return self.conv(real) if self.layer_in_float else self.conv(integers) + real

    net = Both(layer_in_float=False)
    watch_first_pass(net)
    net(X)
    assert net.conv.input_fake_quant is net.first
    net = Both(layer_in_float=True)
    watch_first_pass(net)
    with pytest.raises(
        ModelError, match=r"from a DeQuantStub, is not fake-quantized.*qconfig to None"
    ):
        net(X)


def test_activations_in_place_train() -> None:
    net = Net(in_place)
    watch_first_pass(net)
    for _ in range(2):
        net(X).sum().backward()
    assert net.conv.input_fake_quant is net.first
    assert net.conv.weight.grad is not None


def test_a_model_that_has_seen_no_data_is_not_exported() -> None:
    net = Net().eval()
    watch_first_pass(net)
    with pytest.raises(UnsupportedError, match="has seen no data yet"):
        torch.export.export(net, (X,))
