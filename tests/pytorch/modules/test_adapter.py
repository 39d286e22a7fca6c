from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.errors import ModelError, UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch import convert, export, prepare_qat
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.modules.adapter import as_module, check_traceable, exported_axes, in_float32

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.linspace(-1, 1, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(self.drop(torch.relu(self.bn(self.conv(x))).mean((2, 3))))
        return y


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def program(net: nn.Module, largest: int = 64) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("rows", min=1, max=largest)
    return torch.export.export(net, (X,), dynamic_shapes=({0: batch},))


FORMS: dict[str, Callable[[Any], Any]] = {
    "a program": program,
    "of a program in eval mode": lambda net: program(net.eval()),
    "its module": lambda net: program(net).module(),
    "compiled": lambda net: torch.compile(net, backend="eager"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_computes_what_the_module_does_in_eval_mode(form: str, net: Net) -> None:
    made = as_module(FORMS[form](net.train()))
    with torch.no_grad():
        assert torch.equal(made.eval()(X), net.eval()(X))
    names = {name for name, _ in net.named_parameters()}
    assert {name for name, _ in made.named_parameters()} == names


def test_a_program_is_exported_with_its_own_axes(net: Net, tmp_path: Path) -> None:
    torch.export.save(program(net), tmp_path / "net.pt2")
    model = export(tmp_path / "net.pt2", X)
    assert str(model.graph.inputs[0].shape) == "[batch,3,4,4]"
    assert "conv.weight" in model.graph.initializers
    rows = X.repeat(2, 1, 1, 1).numpy()
    with torch.no_grad(), runtime.open_session(model) as session:
        wanted = net.eval()(torch.from_numpy(rows)).numpy()
        assert abs(session.run({"x": rows})[0] - wanted).max() < 1e-6
    fixed = export(torch.export.export(net.eval(), (X,)), X)
    assert str(fixed.graph.inputs[0].shape) == "[2,3,4,4]"


def test_axes_of_a_program_have_its_ranges(net: Net) -> None:
    made = as_module(program(net, 9))
    axes = exported_axes(made, bind(made, X))
    assert axes is not None
    assert axes.of == {"x": {0: "batch"}}
    assert axes.ranges["batch"][1] == 9
    assert exported_axes(net, bind(net, X)) is None


def _traced(net: nn.Module) -> Any:
    return torch.jit.trace(net, X)  # type: ignore[no-untyped-call]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("script", [torch.jit.script, _traced])
def test_scripted_and_traced_modules_are_exported(script: Any, net: Net) -> None:
    scripted = script(net.eval())
    with runtime.open_session(export(scripted, X)) as session, torch.no_grad():
        assert abs(session.run({"x": X.numpy()})[0] - net(X).numpy()).max() < 1e-6
    with pytest.raises(UnsupportedError, match="Leave opset, input_names"):
        export(scripted, X, output_names=["y"])
    with pytest.raises(UnsupportedError, match="no Python code to trace"):
        check_traceable(scripted, "prepare_qat")
    check_traceable(net, "prepare_qat")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_exported_in_float32_with_a_note(dtype: torch.dtype) -> None:
    half = Net().to(dtype)
    with pytest.warns(UserWarning, match="taken in float32, a copy"):
        model = export(half, X.to(dtype))
    assert half.fc.weight.dtype == dtype
    assert str(model.graph.inputs[0].dtype) == "FLOAT"
    assert in_float32({"x": (X.to(dtype), 3)})["x"][0].dtype == torch.float32


def test_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pt2").write_bytes(b"no")
    with pytest.raises(ModelError, match="holds no program"):
        as_module(tmp_path / "no.pt2")
    with pytest.raises(ModelError, match=r"wanted a torch\.nn\.Module"):
        as_module(Net)  # type: ignore[arg-type]


def test_a_module_that_has_an_orig_mod_of_its_own_is_itself() -> None:
    module = nn.Linear(2, 2)
    module._orig_mod = nn.ReLU()
    assert as_module(module) is module


@pytest.mark.filterwarnings("ignore:.*is taken in float32:UserWarning")
def test_a_model_given_in_bfloat16_trains_on_bfloat16_batches() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).bfloat16()
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    prepared = prepare_qat(net, inputs=x)
    prepared(x).square().mean().backward()
    assert all(p.grad is not None and p.dtype is torch.float32 for p in prepared.parameters())
    wanted = prepared.eval()(x)
    for copied in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        torch.testing.assert_close(copied(x), wanted, rtol=0, atol=0)
    model = export(convert(prepared), x)
    assert onnxq.cross_check(model, {str(model.graph.inputs[0].name): x.float().numpy()}).exact
