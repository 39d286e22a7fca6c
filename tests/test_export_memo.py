from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch import export
from onnxq.pytorch.exporting import exporter
from onnxq.pytorch.exporting.trace import trace
from tests.export_memo import Memo, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

pytestmark = pytest.mark.oracle

X = torch.ones(3, 4)


def net(dropout: float = 0.1) -> Any:
    torch.manual_seed(3)
    layers = (nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(dropout), nn.Linear(4, 4))
    return nn.Sequential(*layers).eval()


def twice(x: Tensor) -> Tensor:
    return 2 * x


def hook(_: nn.Module, __: object, result: Tensor) -> Tensor:
    return 2 * result


class Doubled(nn.Linear):
    times = 2

    def forward(self, x: Tensor) -> Tensor:
        return self.times * super().forward(x)


CHANGES: dict[str, Callable[[Any], object]] = {
    "one number of a weight": lambda m: m[0].weight.data[1, 2].add_(1e-3),
    "a buffer": lambda m: m[1].running_mean.add_(1),
    "the share that is dropped": lambda m: setattr(m[2], "p", 0.2),
    "a part in training": lambda m: m[2].train(),
    "an attribute": lambda m: setattr(m[1], "eps", 1e-3),
    "a hook": lambda m: m[0].register_forward_hook(hook),
    "a function": lambda m: setattr(m[2], "forward", twice),
    "another class": lambda m: setattr(m[0], "__class__", Doubled),
    "a weight that two share": lambda m: setattr(m[3], "weight", m[0].weight),
    "an equal weight that is not shared": lambda m: m[3].load_state_dict(m[0].state_dict()),
    "the layout of a weight": lambda m: setattr(
        m[0].weight, "data", m[0].weight.data.T.contiguous().T
    ),
    "a frozen weight": lambda m: m[0].weight.requires_grad_(False),
    "the type": lambda m: m.double(),
    "a part more": lambda m: m.append(nn.ReLU()),
}


def test_equal_modules_have_equal_keys() -> None:
    assert key_of(net(), X) == key_of(net(), X.clone()) is not None


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_tracing_can_read_is_in_the_key(change: str) -> None:
    module = net()
    CHANGES[change](module)
    assert key_of(module, X) != key_of(net(), X)


def test_shared_and_equal_weights_have_different_keys() -> None:
    shared, equal = net(), net()
    equal[3].load_state_dict(equal[0].state_dict())
    shared[3] = shared[0]
    assert key_of(shared, X) != key_of(equal, X)


@pytest.mark.parametrize(
    "inputs", [torch.ones(2, 4), torch.ones(3, 4).double(), 2 * torch.ones(3, 4)]
)
def test_inputs_are_in_the_key(inputs: Tensor) -> None:
    assert key_of(net(), inputs) != key_of(net(), X)


def test_modes_of_torch_are_in_the_key() -> None:
    key = key_of(net(), X)
    with torch.no_grad():
        assert key_of(net(), X) != key
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert key_of(net(), X) != key
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_attributes_of_the_class_are_in_the_key() -> None:
    module = Doubled(4, 4)
    key = key_of(module, X)
    Doubled.times = 3
    try:
        assert key_of(module, X) != key
    finally:
        Doubled.times = 2


def test_what_cannot_be_written_down_has_no_key() -> None:
    class Inside(nn.Linear):
        pass

    module = net()
    module[2].forward = lambda x: x
    assert key_of(module, X) is None
    assert key_of(Inside(4, 4), X) is None
    assert key_of(torch.fx.symbolic_trace(net()), X) is None


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Modules that were traced, by exports with a memo of their own."""
    traced: list[nn.Module] = []

    def counting(module: nn.Module, *request: Any) -> ir.Model:
        traced.append(module)
        return trace(module, *request)

    monkeypatch.setattr(exporter, "trace", Memo(counting))
    return traced


def weights(model: ir.Model) -> dict[str, bytes]:
    return {
        name: value.const_value.numpy().tobytes()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


def test_the_second_export_is_a_copy_of_the_first(counted: list[nn.Module]) -> None:
    first, second = export(net(), X), export(net(), X)
    assert len(counted) == 1
    assert str(first) == str(second)
    assert weights(first) == weights(second)


def test_other_opsets_axes_and_names_are_traced(counted: list[nn.Module]) -> None:
    export(net(), X)
    assert export(net(), X, opset=20).opset_imports[""] == 20
    assert export(net(), X, dynamic_axes={}).graph.inputs[0].shape == (3, 4)
    assert export(net(), X, output_names=["y"]).graph.outputs[0].name == "y"
    assert len(counted) == 4


def test_what_is_done_to_one_model_or_module_the_next_does_not_see(
    counted: list[nn.Module],
) -> None:
    module = net()
    start = copy.deepcopy(module)
    first = export(module, X)
    kept = weights(first)
    first.graph.remove(list(first.graph)[-1:], safe=False)
    with torch.no_grad():
        module[0].weight.zero_()
    assert weights(export(start, X)) == kept
    assert len(list(export(start, X).graph)) == len(list(first.graph)) + 1
    assert len(counted) == 1
