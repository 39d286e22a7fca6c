from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from onnxq.errors import ModelError, OutputError, QConfigError, UnsupportedError, VerificationError
from onnxq.ort import runtime
from onnxq.pytorch import convert, export, prepare_qat
from onnxq.quantized.quantized_model import QuantizedModel

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("exports_anew")]

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Affine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.drop = nn.Dropout()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.drop(self.fc(rows))
        return y


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        inner = x * scale
        return {"mul": inner + 1, "x": inner.argmax(1)}


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


class FixedBatch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] == 2 else x + 1


class Bessel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.special.bessel_j0(x)
        return y


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


class Mixed(nn.Module):
    def forward(self, x: torch.Tensor, times: int) -> torch.Tensor:
        return x * times


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.lstm(x)[0]
        return y


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(self.embedding(ids) * mask[..., None])
        return y


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = nn.functional.gelu(self.norm(self.conv(image)))
        return y


def test_batch_is_dynamic_by_default_even_from_one_example_row() -> None:
    model = export(Affine(), X[:1])
    (value,) = model.graph.inputs
    assert value.name == "rows"
    assert value.shape is not None
    assert str(value.shape[0]) == "batch"
    with runtime.open_session(model) as session:
        for rows in (1, 2, 7):
            assert session.run({"rows": np.zeros((rows, 3), np.float32)})[0].shape == (rows, 4)


def test_empty_dynamic_axes_fix_every_shape() -> None:
    model = export(Affine(), X[:1], dynamic_axes={})
    assert model.graph.inputs[0].shape is not None
    assert model.graph.inputs[0].shape.dims == (1, 3)


def test_a_named_axis_other_than_the_batch_is_dynamic() -> None:
    model = export(nn.ReLU(), torch.zeros(2, 5), dynamic_axes={"input": {-1: "length"}})
    shape = model.graph.inputs[0].shape
    assert shape is not None
    assert [str(d) for d in shape] == ["2", "length"]


@pytest.mark.parametrize("opset", [18, 19, 20, 21, 22])
def test_the_opset_is_the_one_asked_for(opset: int) -> None:
    assert export(Affine(), X, opset=opset).opset_imports[""] == opset


@pytest.mark.parametrize("opset", [17, 23])
def test_an_opset_out_of_range_is_refused(opset: int) -> None:
    with pytest.raises(UnsupportedError, match="18 to 22"):
        export(Affine(), X, opset=opset)


def test_another_opset_than_asked_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.onnx.export

    def older(*args: object, **kwargs: object) -> object:
        return real(*args, **(kwargs | {"opset_version": 18}))  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(torch.onnx, "export", older)
    with pytest.raises(UnsupportedError, match="returned opset 18 where 21 was asked"):
        export(Affine(), X)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (Recurrent(), (torch.ones(2, 5, 3),)),
        (Encoder(), (torch.tensor([[1, 2], [3, 4]]), torch.ones(2, 2))),
        (Pixels(), torch.ones(1, 3, 8, 8)),
    ],
    ids=["lstm", "transformer", "groupnorm-gelu"],
)
def test_export_is_silent_and_equal_to_the_module(
    module: nn.Module,
    inputs: torch.Tensor,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        export(module, inputs)  # raises where it differs
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert [str(w.message) for w in warned] == []


def test_warnings_of_the_module_itself_reach_the_caller() -> None:
    class Warns(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("mind the gap", UserWarning, stacklevel=1)
            return x + 1

    with pytest.warns(UserWarning, match="mind the gap"):
        export(Warns(), X)


def test_modes_of_every_part_are_restored() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout()).train()
    module[1].eval()
    export(module, X)
    assert [part.training for part in module] == [True, False, True]
    assert module.training
    with pytest.raises(UnsupportedError):
        export(module.append(Branches()), X)
    assert [part.training for part in module] == [True, False, True, True]


def test_training_on_does_not_change_the_exported_model() -> None:
    module = Affine()
    model = export(module, X)
    before = model.graph.initializers["fc.bias"].const_value
    assert before is not None
    wanted = before.numpy().copy()
    with torch.no_grad():
        module.fc.bias.add_(1)
    np.testing.assert_array_equal(before.numpy(), wanted)


def test_the_file_is_one_and_names_no_path_of_this_machine(tmp_path: Path) -> None:
    export(Affine(), X, tmp_path / "affine.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["affine.onnx"]
    onnx.checker.check_model(tmp_path / "affine.onnx", full_check=True)
    assert str(Path(__file__).parent).encode() not in (tmp_path / "affine.onnx").read_bytes()


def test_names_of_parameters_and_scopes_are_kept() -> None:
    model = export(Affine(), X)
    assert {"fc.weight", "fc.bias"} <= set(model.graph.initializers)
    assert any("fc" in node.metadata_props["pkg.torch.onnx.name_scopes"] for node in model.graph)


def test_keys_of_a_mapping_name_the_outputs_and_never_clash() -> None:
    model = export(TwoInputs(), {"scale": X + 2, "x": X})
    assert [v.name for v in model.graph.inputs] == ["x", "scale"]
    assert [v.name for v in model.graph.outputs] == ["mul", "x_out"]
    names = [v.name for node in model.graph for v in node.outputs]
    assert len(names) == len(set(names))


def test_output_names_can_be_given() -> None:
    assert export(Affine(), X, output_names=["logits"]).graph.outputs[0].name == "logits"


def test_a_model_that_computes_something_else_is_refused_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"Noisy.*differs from the module by"):
        export(Noisy(), X, tmp_path / "noisy.onnx")
    assert not list(tmp_path.iterdir())


def test_tolerance_is_the_callers_to_widen() -> None:
    export(Noisy(), X.repeat(1, 20), tolerance=10)  # so many that dropout leaves some


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        (Branches(), r"torch\.where or torch\.cond"),
        (FixedBatch(), r"dynamic_axes=\{\}"),
        (Bessel(), r"bessel_j0.*\n.*no ONNX form"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_exported_says_why_and_what_to_do(module: nn.Module, advice: str) -> None:
    with pytest.raises(UnsupportedError, match=advice) as caught:
        export(module, X)
    assert isinstance(caught.value.__cause__, torch.onnx.OnnxExporterError)


@pytest.mark.filterwarnings("ignore")  # torch deprecates its own quantization
def test_a_module_quantized_by_torch_is_sent_back_to_float() -> None:
    module = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]  # has no types
        Affine(), {nn.Linear}
    )
    with pytest.raises(UnsupportedError, match="export the float one"):
        export(module, X)


def test_an_input_that_forward_does_not_use_is_kept() -> None:
    class Unused(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # noqa: ARG002  # the point
            return x + 1

    model = export(Unused(), (X, X))
    assert [v.name for v in model.graph.inputs] == ["x", "y"]


def test_missing_and_unknown_inputs_are_named() -> None:
    with pytest.raises(QConfigError, match=r"Affine.forward\(rows\).*Did you mean 'rows'"):
        export(Affine(), {"row": X})
    with pytest.raises(QConfigError, match="too many positional arguments"):
        export(Affine(), (X, X))
    with pytest.raises(UnsupportedError, match=r"'times' is a ndarray.*torch\.from_numpy"):
        export(Mixed(), (X, X.numpy()))


def test_example_inputs_that_forward_cannot_take_are_named() -> None:
    wanted = r"Affine fails on the example inputs rows=float32\[1, 5\]: .*--input"
    with pytest.raises(ModelError, match=wanted) as caught:
        export(Affine(), torch.zeros(1, 5))
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ModelError, match=r"rows=float64\[2, 3\]"):
        export(Affine(), X.double())


def test_a_module_in_another_float_type_is_refused_with_the_remedy() -> None:
    with pytest.raises(ModelError, match=r"'fc.weight' is float64; .*module\.float\(\)"):
        export(Affine().double(), X.double())


class Skipping(nn.Module):
    """An argument with a default ahead of one that is given, and nested results."""

    def forward(self, a: Tensor, b: Tensor | None = None, c: Tensor | None = None) -> Any:
        y = a if c is None else a * c
        return {"y": y, "more": (y + 1, {"z": y if b is None else b})}


def test_keywords_behind_skipped_defaults_and_nested_results_are_exported() -> None:
    model = export(Skipping(), {"a": X, "c": X})
    assert [value.name for value in model.graph.inputs] == ["a", "c"]
    assert [value.name for value in model.graph.outputs] == ["y", "more_0", "more_1_z"]


def test_unknown_axes_are_named() -> None:
    with pytest.raises(QConfigError, match=r"no input 'row'.*Did you mean 'rows'"):
        export(Affine(), X, dynamic_axes={"row": {0: "batch"}})
    with pytest.raises(QConfigError, match="rank 2, no axis 2"):
        export(Affine(), X, dynamic_axes={"rows": {2: "batch"}})
    with pytest.raises(QConfigError, match="is empty along axis 0"):
        export(Affine(), X[:0])


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        export(Affine(), X, tmp_path / "no" / "such" / "folder" / "model.onnx")


def test_a_parameter_called_like_an_input_gets_another_name() -> None:
    class Shadow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.x

    model = export(Shadow(), X)
    assert [v.name for v in model.graph.inputs] == ["x"]
    assert "x" not in model.graph.initializers


def test_an_exported_file_can_be_quantized_by_onnxruntimes_own_tool(tmp_path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    export(net, torch.randn(2, 4), tmp_path / "net.onnx")
    quantize_dynamic(tmp_path / "net.onnx", tmp_path / "int8.onnx")
    made = onnx.load(tmp_path / "int8.onnx")
    assert [n.op_type for n in made.graph.node].count("MatMulInteger") == 2


def test_a_quantized_module_gives_a_model_with_a_verdict() -> None:
    prepared = prepare_qat(Affine(), inputs=X)
    prepared(X)
    made = export(convert(prepared.eval()), X)
    assert isinstance(made, QuantizedModel)
    assert made.verdict is not None
    assert str(made.verdict).startswith("it runs (on example inputs): ")
    assert made.verdict.integer_nodes
    assert not isinstance(export(Affine(), X), QuantizedModel)


class WithPast(nn.Module):
    def forward(self, x: Tensor, mask: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        kept = torch.cat((past[0], x), 1)
        return (kept * mask).sum(1, keepdim=True) + x, [kept]


def test_names_need_not_be_parameters_and_sizes_may_be_sums() -> None:
    names = ["x", "mask", "past.0"]
    axes = {
        "x": {0: "batch", 1: "new"},
        "mask": {0: "batch", 1: "past + new"},
        "past.0": {0: "batch", 1: "past"},
    }
    inputs = (torch.ones(2, 3), torch.ones(2, 8), [torch.ones(2, 5)])
    model = export(
        WithPast(), inputs, input_names=names, output_names=["y", "present.0"], dynamic_axes=axes
    )
    shapes = {str(v.name): [str(n) for n in v.shape or ()] for v in model.graph.inputs}
    assert shapes == {name: list(of.values()) for name, of in axes.items()}
    with runtime.open_session(model) as session:
        y, kept = session.run(
            {
                "x": np.ones((1, 1), np.float32),
                "mask": np.ones((1, 9), np.float32),
                "past.0": np.ones((1, 8), np.float32),
            }
        )
    assert y == 10
    assert kept.shape == (1, 9)
