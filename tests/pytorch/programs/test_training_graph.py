"""The training graph computes what the module does, in both modes, and keeps its state."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

from onnxq.errors import ModelError
from onnxq.ort.runtime import open_session
from onnxq.pytorch import convert, prepare_qat
from onnxq.pytorch.exporting.exporter import export
from onnxq.pytorch.programs.program import program_of
from onnxq.pytorch.programs.training_graph import PROGRAM_NODES, training_graph
from tests.pytorch.programs.nets import DropPath, Mixed, Nested, Result, images, sequences

if TYPE_CHECKING:
    from onnxq.pytorch.programs.graph_module import TrainingGraph

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def made() -> tuple[Mixed, TrainingGraph]:
    torch.manual_seed(0)
    model = Mixed()
    return model, training_graph(copy.deepcopy(model), program_of(model, images()))


def seeded(module: nn.Module, *args: object) -> dict[str, object]:
    torch.manual_seed(7)
    result: dict[str, object] = module(*args)
    return result


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("rows", [4, 2, 1])
def test_it_computes_what_the_module_computes(
    made: tuple[Mixed, TrainingGraph], training: bool, rows: int
) -> None:
    model, graph = (module.train(training) for module in made)
    torch.testing.assert_close(
        seeded(graph, images(rows)), seeded(model, images(rows)), rtol=0, atol=0
    )
    whole = nn.Module.state_dict(graph)  # under all names of a tensor
    torch.testing.assert_close(whole, model.state_dict(), rtol=0, atol=0)


def test_gradients_are_those_of_the_module(made: tuple[Mixed, TrainingGraph]) -> None:
    for module in made:
        module.train().zero_grad()
        seeded(module, images())["scores"].square().sum().backward()  # type: ignore[attr-defined]  # a tensor
    model, graph = made
    ours = {name: x.grad for name, x in graph.named_parameters()}
    for name, x in model.named_parameters():
        torch.testing.assert_close(ours[name], x.grad, rtol=0, atol=0)


def test_names_of_parameters_and_buffers_stay(made: tuple[Mixed, TrainingGraph]) -> None:
    model, graph = made
    assert [*nn.Module.state_dict(graph)] == [*model.state_dict()]
    assert [*graph.state_dict()] == [n for n in model.state_dict() if n != "tied.weight"]
    assert [n for n, _ in graph.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert [n for n, _ in graph.named_buffers()] == [n for n, _ in model.named_buffers()]
    assert graph.get_parameter("tied.weight") is graph.bare


def test_layers_are_called_as_modules(made: tuple[Mixed, TrainingGraph]) -> None:
    called = {str(node.target) for node in made[1].graph.nodes if node.op == "call_module"}
    assert {"conv", "norm", "act", "drop", "path", "rms", "tied"} <= called
    assert "normed.parametrizations.weight" in called


def test_nodes_name_those_of_the_program(made: tuple[Mixed, TrainingGraph]) -> None:
    names = {node.name: node.meta.get(PROGRAM_NODES) for node in made[1].graph.nodes}
    assert names["conv"] == ("conv2d",)
    assert names["matmul"] == ("matmul",)
    assert names["x"] == ("x",)


def test_nested_arguments_and_dataclasses_are_those_of_the_module() -> None:
    model = Nested()
    graph = training_graph(copy.deepcopy(model), program_of(model, sequences()))
    got, wanted = graph(*sequences(2)), model(*sequences(2))
    assert isinstance(got, Result)
    assert got.name is None
    torch.testing.assert_close(got.scores, wanted.scores, rtol=0, atol=0)
    torch.testing.assert_close(got.state, wanted.state, rtol=0, atol=0)
    assert isinstance(graph.lstm, nn.LSTM)
    got.scores.sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    assert graph.lstm.weight_ih_l0.grad is not None


class Padded(nn.Conv2d):
    """A convolution that pads by itself, and has a part."""

    def __init__(self) -> None:
        super().__init__(3, 4, 3, stride=2)
        self.after = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the convolution of x, padded on one side."""
        y: Tensor = self.after(
            functional.conv2d(functional.pad(x, (0, 1, 0, 1)), self.weight, self.bias, 2)
        )
        return y


def test_a_subclass_that_does_more_becomes_the_plain_layer_on_the_same_tensors() -> None:
    model = nn.Sequential(Padded())
    graph = training_graph(copy.deepcopy(model), program_of(model, images()))
    assert type(graph.get_submodule("0")) is nn.Conv2d
    assert isinstance(graph.get_submodule("0.after"), nn.ReLU)
    torch.testing.assert_close(graph(images()), model(images()), rtol=0, atol=0)


def test_hooks_act_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda _, __, y: y * 2)
    graph = training_graph(copy.deepcopy(model), program_of(model, torch.ones(2, 4)))
    torch.testing.assert_close(graph(torch.ones(3, 4)), model(torch.ones(3, 4)))


class Detached(nn.Module):
    """A region without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Rows, normalized by a factor that is not trained."""
        y = self.fc(x)
        with torch.no_grad():
            factor = y.abs().mean()
        z: Tensor = y / factor
        return z


class Branching(nn.Module):
    """One of two layers, by the sign of a sum, behind a branch with a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.above, self.below = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = torch.cond(x.sum() > 99, self.clipped, lambda v: v + 0, (x,))
        y = torch.cond(x.sum() > 0, lambda v: self.above(v), lambda v: self.below(v), (x,))
        return self.last(y)  # type: ignore[no-any-return]  # torch's

    def clipped(self, x: Tensor) -> Tensor:
        made: Tensor = torch.cond(x.max() > 9, lambda v: v - 1, lambda v: v + 1, (x,))
        return made


@pytest.mark.filterwarnings("ignore:train mode could not be looked at")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # inside of torch
def test_branches_of_cond_stay_in_float_and_train() -> None:
    torch.manual_seed(0)
    module, x = Branching(), torch.randn(4, 8)
    model: Any = prepare_qat(module.train(), inputs=(x,))
    for sign in (1, -1):
        model.zero_grad()
        model(sign * x).sum().backward()
        of_above, of_below = model.above.weight.grad, model.below.weight.grad
        assert (of_above is None or not of_above.any()) != (of_below is None or not of_below.any())
    assert model.first.weight.grad is not None
    trained = model.eval()(x)
    converted = pickle.loads(pickle.dumps(convert(pickle.loads(pickle.dumps(model)))))
    torch.testing.assert_close(converted(x), trained, rtol=0, atol=0)
    written = export(converted, (x,))
    found = [n.op_type for n in written.graph if n.op_type in ("Gemm", "If")]
    assert found == ["Gemm", "If", "If", "Gemm"]
    with open_session(written, threads=1) as session:
        (y,) = session.run({str(written.graph.inputs[0].name): x.numpy()})
    torch.testing.assert_close(torch.from_numpy(np.array(y)), trained, rtol=1e-5, atol=1e-6)


class Looping(nn.Module):
    """A layer behind a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        def step(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, v * 0.5 + 1

        _, x = while_loop(lambda i, _: i < 3, step, (torch.zeros((), dtype=torch.int64), x))  # type: ignore[no-untyped-call]  # torch's
        y: Tensor = self.layer(x)
        return y


def test_bodies_of_loops_stay_in_float() -> None:
    x = torch.randn(4, 8)
    model = prepare_qat(Looping(), inputs=(x,))
    trained = model.eval()(x)
    torch.testing.assert_close(convert(model)(x), trained, rtol=0, atol=0)


def test_parameters_with_strides_and_results_that_are_parameters_are_taken() -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 16)[:, ::2])
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x @ self.weight, self.scale

    x = torch.randn(4, 8)
    converted = convert(prepare_qat(Strided(), inputs=(x,)).eval())
    assert len(export(converted, (x,)).graph.outputs) == 2


def test_parameters_without_a_shape_are_named() -> None:
    with pytest.raises(ModelError, match=r"'0\.weight', '0\.bias' have no shape yet"):
        prepare_qat(nn.Sequential(nn.LazyLinear(4)), inputs=torch.randn(4, 8))


def test_regions_without_gradients_have_none() -> None:
    model, x = Detached(), torch.randn(3, 4)
    graph = training_graph(copy.deepcopy(model), program_of(model, x))
    for module in (model, graph):
        y: Tensor = module(x)
        y.square().sum().backward()  # type: ignore[no-untyped-call]  # torch's
    torch.testing.assert_close(graph.get_parameter("fc.weight").grad, model.fc.weight.grad)


def test_batch_norm_for_any_rank_becomes_that_of_the_rank() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SyncBatchNorm(4)).eval()
    graph = training_graph(copy.deepcopy(model), program_of(model, images()))
    assert type(graph.get_submodule("1")) is nn.BatchNorm2d
    torch.testing.assert_close(graph(images()), model(images()))


def test_modules_that_drop_in_train_mode_alone_are_kept(made: tuple[Mixed, TrainingGraph]) -> None:
    assert isinstance(made[1].path, DropPath)
