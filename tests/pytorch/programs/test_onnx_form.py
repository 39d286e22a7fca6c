"""The ONNX form of a program: its values are the results of the nodes that they name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from onnxq.errors import UnsupportedError
from onnxq.graph.canonical import canonicalize_module
from onnxq.graph.origins import origins_of
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.ort.types_by_run import types_by_run
from onnxq.pytorch.programs.onnx_form import onnx_form
from onnxq.pytorch.programs.program import program_of

# of the largest value: float sums in another order; other tensors differ by more
TOLERANCE = 1e-4


class Net(nn.Module):
    """Batch norm, dropout, attention, several results, constants, a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.drop, self.fc = nn.Dropout(0.1), nn.Linear(8, 12)
        self.place = nn.Parameter(torch.randn(36, 12))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y = functional.relu(self.norm(self.conv(x)))
        tokens = self.fc(self.drop(y).flatten(2).transpose(1, 2)) + self.place
        q, k, v = tokens.chunk(3, -1)
        z = functional.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
        return functional.silu(z).mean((2, 3)) + y.mean((2, 3))[:, :1]


class _Recorder(fx.Interpreter):
    """Keeps what each node gives."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, object] = {}

    def run_node(self, n: fx.Node) -> object:
        self.values[n.name] = super().run_node(n)
        return self.values[n.name]


def test_every_value_with_an_origin_equals_the_result_of_that_node() -> None:
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 8, 8)
    program = program_of(model, x)
    canonical = canonicalize_module(onnx_form(program), types_by_run).model
    named = [v for node in canonical.graph for v in node.outputs if origins_of(v)]
    exported = program.exported
    recorder = _Recorder(exported.graph_module)
    constants = {**exported.state_dict, **exported.constants}
    signature = exported.graph_signature
    known = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    placeholders = [n.name for n in exported.graph.nodes if n.op == "placeholder"]
    with torch.no_grad():
        recorder.run(*[constants[known[name]] if name in known else x for name in placeholders])
    names = [str(v.name) for v in named]
    exposed = expose(canonical, names)
    with runtime.open_session(exposed.model) as session:
        arrays = session.run({"x": x.numpy()}, [exposed.outputs[name] for name in names])
    for value, array in zip(named, arrays, strict=True):
        for origin in origins_of(value):
            wanted = recorder.values[origin]
            assert isinstance(wanted, Tensor)
            bound = TOLERANCE * max(float(wanted.abs().max()), 1.0)
            assert np.abs(array.ravel() - wanted.numpy().ravel()).max() <= bound
    found = {origin for value in named for origin in origins_of(value)}
    wanted_names = {"batch_norm", "relu", "linear", "softmax_int", "silu", "matmul_default"}
    assert wanted_names <= found
    assert {"getitem", "getitem_1", "getitem_2"} <= found


def test_parameters_know_the_nodes_that_stand_for_them() -> None:
    torch.manual_seed(0)
    form = onnx_form(program_of(Net().eval(), torch.randn(2, 3, 8, 8)))
    place = form.graph.initializers["place"]
    assert origins_of(place) == ("p_place",)


class SoftmaxInFloat(nn.Module):
    """Attention's probabilities, in float32 as they are already, ahead of a dropout of 0."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, T) -> (N, T, T)."""
        p = functional.softmax(x, -1, dtype=torch.float32)
        return functional.dropout(p, 0.0, self.training) @ x


def test_a_cast_that_is_left_out_hands_its_origins_on() -> None:
    form = onnx_form(program_of(SoftmaxInFloat(), torch.randn(2, 3, 3)))
    made = {node.op_type: set(origins_of(node.outputs[0])) for node in form.graph}
    assert made["Softmax"] == {"softmax", "dropout"}


class Unknown(nn.Module):
    """An operator that ONNX does not have."""

    def forward(self, x: Tensor) -> Tensor:
        """Singular values."""
        values: Tensor = torch.linalg.svdvals(x)
        return values


def test_an_operator_without_onnx_form_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match="What to do"):
        onnx_form(program_of(Unknown(), torch.randn(4, 3, 3)))


def test_of_parametrized_weights_the_way_without_is_said() -> None:
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
    with pytest.raises(UnsupportedError, match=r"Weights of 0 are parametrized: .*remove_param"):
        onnx_form(program_of(nn.Sequential(layer), torch.randn(3, 4)))
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert onnx_form(program_of(nn.Sequential(layer), torch.randn(3, 4)))
