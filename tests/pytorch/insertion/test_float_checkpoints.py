"""Checkpoints of the float model, loaded into the model that trains."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch import convert, prepare_qat

if TYPE_CHECKING:
    from collections.abc import Callable

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
    torch.testing.assert_close({name: held[name] for name in saved}, saved, rtol=0, atol=0)
    torch.testing.assert_close(held[f"conv.bn.{NORM}"], saved[f"bn.{NORM}"], rtol=0, atol=0)


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
    saved = {n: x + 1 if n.startswith("conv.") else x for n, x in prepared.state_dict().items()}
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
