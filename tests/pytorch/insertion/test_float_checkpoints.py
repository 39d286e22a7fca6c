"""Checkpoints of the float model, loaded into the model that trains."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from onnxq.observers import HistogramObserver
from onnxq.pytorch import convert, prepare_qat
from onnxq.qconfig import FakeQuantSpec, QConfig, QConfigMapping, get_default_qat_qconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.oracle
NORM = "running_mean"


class Net(nn.Module):
    """A norm that is fused into its convolution, a bare weight, tied ones, and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(4)  # ahead of the layer that it goes into
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.fc, self.tied = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied.weight = self.fc.weight
        self.bare = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Two numbers for each image."""
        y = torch.relu(self.bn(self.conv(x))).mean((2, 3))
        z: Tensor = self.tied(self.fc(y)) @ self.bare + 0.5
        return z


@pytest.fixture(scope="module")
def prepared() -> nn.Module:
    torch.manual_seed(0)
    return prepare_qat(Net(), inputs=torch.randn(2, 3, 8, 8))


def checkpoint() -> dict[str, Tensor]:
    torch.manual_seed(1)
    model = Net()
    model(torch.randn(8, 3, 8, 8))  # its norm has statistics
    return copy.deepcopy(model.state_dict())


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("assign", [False, True])
def test_a_checkpoint_of_the_float_model_loads_strictly(
    prepared: nn.Module, again: Callable[[nn.Module], nn.Module], assign: bool
) -> None:
    model, saved = again(prepared), checkpoint()
    model.load_state_dict(saved, strict=True, assign=assign)
    held = model.state_dict()
    there = {name: x for name, x in saved.items() if name in held}
    assert saved.keys() - held.keys() == {"tied.weight"}  # which is fc.weight
    torch.testing.assert_close({name: held[name] for name in there}, there, rtol=0, atol=0)
    norm: Any = model.get_submodule("conv.bn")
    torch.testing.assert_close(norm.running_mean, saved[f"bn.{NORM}"], rtol=0, atol=0)


def test_a_wrapper_loads_it_too(prepared: nn.Module) -> None:
    wrapped = nn.ModuleDict({"net": copy.deepcopy(prepared)})
    wrapped.load_state_dict({f"net.{name}": x for name, x in checkpoint().items()})
    assert torch.equal(wrapped.state_dict()["net.bare"], checkpoint()["bare"])


def test_quantizers_keep_what_they_saw(prepared: nn.Module) -> None:
    model = copy.deepcopy(prepared)
    model.load_state_dict(checkpoint())
    before = prepared.state_dict()["x_fake_quant.scale"]
    assert torch.equal(model.state_dict()["x_fake_quant.scale"], before)


def test_a_checkpoint_that_lacks_a_weight_is_refused(prepared: nn.Module) -> None:
    saved = checkpoint()
    del saved["fc.bias"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"fc.bias\""):
        copy.deepcopy(prepared).load_state_dict(saved)


def test_a_checkpoint_of_training_may_know_a_norm_by_its_layer_alone(prepared: nn.Module) -> None:
    whole = nn.Module.state_dict(prepared)
    saved = {n: x + 1 if n.startswith("conv.") else x for n, x in whole.items()}
    alone = {name: x for name, x in saved.items() if not name.startswith("bn.")}
    model = copy.deepcopy(prepared)
    model.load_state_dict(alone)
    assert torch.equal(model.get_buffer(f"bn.{NORM}"), saved[f"conv.bn.{NORM}"])


def test_a_converted_model_holds_no_norm_beside_the_layer_that_has_it(prepared: nn.Module) -> None:
    converted = convert(copy.deepcopy(prepared))
    assert not [name for name in converted.state_dict() if name.startswith("bn.")]


def test_a_checkpoint_of_training_that_lacks_a_scale_is_refused(prepared: nn.Module) -> None:
    saved = prepared.state_dict()
    del saved["x_fake_quant.scale"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\).*x_fake_quant.scale"):
        copy.deepcopy(prepared).load_state_dict(saved)


def test_a_converted_model_refuses_it(prepared: nn.Module) -> None:
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading"):
        convert(copy.deepcopy(prepared)).load_state_dict(checkpoint())


class Joined(nn.Module):
    """Tensors with one scale between them, a tied weight, and a norm in a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.fc, self.tied = nn.Linear(8, 8), nn.Linear(8, 8)
        self.tied.weight = self.fc.weight

    def forward(self, x: Tensor) -> Tensor:
        """Eight numbers for each image."""
        y = torch.relu(self.bn(self.conv(x))).mean((2, 3))
        z: Tensor = self.tied(self.fc(torch.cat([y, -y], 1)))
        return z


@pytest.mark.parametrize("observer", [None, HistogramObserver])
def test_safetensors_resume_training_bit_for_bit(tmp_path: Path, observer: Any) -> None:
    torch.manual_seed(0)
    x, net = torch.randn(4, 3, 5, 5), Joined()
    default = get_default_qat_qconfig()
    of_activations = default.activation if observer is None else FakeQuantSpec(observer)
    mapping = QConfigMapping(QConfig(of_activations, default.weight))
    first, second = (prepare_qat(net, inputs=x, qconfig=mapping) for _ in range(2))

    def steps(model: nn.Module) -> list[float]:
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        for i in range(3):
            loss: Any = (model(x * (1 + i)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    steps(first)
    save_file(first.state_dict(), tmp_path / "model.safetensors")  # refuses shared memory
    second.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert steps(first) == steps(second)
