from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, fx, nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch import export
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.arguments.flat import flattened, is_flat, output_names
from onnxq.pytorch.arguments.forward import flatten
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import training_graph

pytestmark = pytest.mark.oracle

X = torch.arange(6.0).reshape(3, 2)


class State(NamedTuple):
    h: Tensor
    c: Tensor


@dataclasses.dataclass
class Result:
    logits: Tensor
    loss: Tensor | None = None


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.gain = nn.Parameter(torch.full((2,), 3.0))

    def forward(self, x: Tensor, state: State, factor: int = 1) -> tuple[Result, State]:
        return Result(self.fc(x) * self.gain * factor + state.h), State(state.c, state.h + 1)


CALL = (X, State(X, X + 1), 2)


def test_tensors_go_in_one_by_one_and_come_out_as_a_tuple() -> None:
    module = Step()
    flat = flattened(module, bind(module, CALL))
    assert list(inspect.signature(flat.forward).parameters) == ["x", "state_h", "state_c"]
    got, wanted = flat(X, X, X + 1), flatten(module(*CALL))
    assert type(got) is tuple
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_parameters_are_the_modules_own_under_their_names() -> None:
    module = Step()
    flat = flattened(module, bind(module, CALL))
    own = dict(module.named_parameters())
    assert {name: id(p) for name, p in flat.named_parameters()} == {
        n: id(p) for n, p in own.items()
    }
    assert type(flat).__name__ == "Step"
    assert "forward" not in vars(module)
    model = export(module, CALL)
    assert {"fc.weight", "fc.bias", "gain"} & set(model.graph.initializers)
    assert [v.name for v in model.graph.outputs] == [
        "output_0_logits",
        "output_1_h",
        "output_1_c",
    ]


def test_hooks_of_the_module_see_its_own_arguments() -> None:
    module, seen = Step(), []

    def before(_: nn.Module, args: tuple[object, ...]) -> None:
        seen.append(type(args[1]))

    def after(_: nn.Module, args: object, result: tuple[Result, State]) -> Tensor:  # noqa: ARG001
        return result[0].logits * 2

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    (got,) = flattened(module, bind(module, CALL))(X, X, X + 1)
    assert torch.equal(got, module(*CALL))
    assert seen == [State, State]
    export(module, CALL)


def test_a_graph_module_and_a_layer_of_torch_have_flat_forms() -> None:
    module = Step()
    graph = training_graph(copy.deepcopy(module), program_of(module, CALL))
    made = flattened(graph, bind(graph, CALL))
    assert not isinstance(made, fx.GraphModule)
    wanted = flatten(module(*CALL))
    assert all(torch.equal(a, b) for a, b in zip(made(X, X, X + 1), wanted, strict=True))
    layer = nn.LSTM(2, 4)
    inputs = (X[None], (torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)))
    assert isinstance(flattened(layer, bind(layer, inputs)), nn.LSTM)


def test_only_tensors_in_and_plain_containers_out_are_flat_already() -> None:
    module = Step()
    assert not is_flat(bind(module, CALL), X)
    bound = bind(nn.ReLU(), X)
    for outputs in (X, (X, X), [X], {"a": X}):
        assert is_flat(bound, outputs)
    for nested in ((X, (X,)), {"a": None}, Result(X), State(X, X)):
        assert not is_flat(bound, nested)


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (X, None),
        ((X, (X, X)), ["output_0", "output_1_0", "output_1_1"]),
        ([X, None, X], ["output_0", "output_2"]),
        ({"y": X, "x": X, "state": (X, None)}, ["y", "x_out", "state_0"]),
        (Result(X), ["logits"]),
        (State(X, X), ["h", "c"]),
        ({"a_0": X, "a": [X]}, ["a_0", "a_0_2"]),
    ],
)
def test_outputs_are_called_by_keys_fields_and_positions(
    outputs: object, names: list[str] | None
) -> None:
    assert output_names(outputs, ["x"]) == names


def test_one_tensor_under_two_names_is_two_outputs() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor, state: tuple[Tensor]) -> dict[str, Tensor]:
            y = x + 1
            return {"y": y, "again": y, "same": x, "state": state[0]}

    model = export(Twice(), (X, (X,)))
    assert [v.name for v in model.graph.outputs] == ["y", "again", "same", "state"]


def test_results_that_are_no_tensors_are_named_with_their_place() -> None:
    class Text(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, str]]:
            return x + 1, {"kind": "text"}

    with pytest.raises(UnsupportedError, match=r"returned a str, as result\[1\]\['kind'\]"):
        export(Text(), X)
