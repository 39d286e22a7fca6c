from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq.errors import ModelError
from onnxq.graph.io import load, model_hash
from onnxq.ort.runtime import open_session
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource, Verdict
from tests.examples import images, network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERDICT = Verdict(InputSource.MADE_UP, 1, 0, (), None, None, 100, 40, 5, 1)


@pytest.fixture
def made() -> QuantizedModel:
    prepared = onnxq.prepare(network())
    prepared.run({"x": images(1)})
    model = onnxq.rewrite(prepared, onnxq.plan(prepared, prepared.statistics))
    model.attach(VERDICT)
    return model


def test_a_saved_file_its_bytes_and_its_proto_are_one(made: QuantizedModel, tmp_path: Path) -> None:
    path = tmp_path / "q.onnx"
    made.save(path)
    assert made.to_bytes() == path.read_bytes()
    onnx.checker.check_model(made.to_proto(), full_check=True)
    onnx.save(made.to_proto(), tmp_path / "again.onnx")
    assert model_hash(load(tmp_path / "again.onnx")) == model_hash(made)
    onnxq.save(made, tmp_path / "third.onnx")
    assert (tmp_path / "third.onnx").read_bytes() == path.read_bytes()


def test_onnxruntime_runs_the_bytes(made: QuantizedModel) -> None:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(made.to_bytes(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": images(2)})
    with open_session(made) as same:
        assert np.array_equal(got, same.run({"x": images(2)})[0])


def test_bytes_hold_weights_that_lie_in_a_file(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    prepared = onnxq.prepare(tmp_path / "m.onnx")
    prepared.run({"x": images(1)})
    made = onnxq.convert(prepared)
    assert not any(t.external_data for t in made.to_proto().graph.initializer)


def edit_attribute(model: ir.Model) -> None:
    (conv,) = (node for node in model.graph if node.name == "conv1")
    conv.attributes["dilations"] = ir.AttrInt64s("dilations", [1, 1])


def edit_weight(model: ir.Model) -> None:
    value = next(v for v in model.graph.initializers.values() if v.const_value is not None)
    assert value.const_value is not None
    value.const_value = ir.Tensor(value.const_value.numpy(), name=value.name)


def edit_edge(model: ir.Model) -> None:
    node = next(node for node in model.graph if node.op_type == "Add")
    node.replace_input_with(0, node.inputs[1])


def edit_name(model: ir.Model) -> None:
    model.graph.outputs[0].name = "other"


def edit_opset(model: ir.Model) -> None:
    model.opset_imports[""] += 1


@pytest.mark.parametrize("edit", [edit_attribute, edit_weight, edit_edge, edit_name, edit_opset])
def test_an_edited_model_has_no_verdict(
    edit: Callable[[ir.Model], None], made: QuantizedModel
) -> None:
    assert made.verdict == VERDICT
    edit(made)
    assert made.verdict is None


def test_what_only_reads_the_model_leaves_the_verdict(made: QuantizedModel, tmp_path: Path) -> None:
    made.save(tmp_path / "q.onnx")
    onnxq.cross_check(made, {"x": images(1)})
    assert made.verdict == VERDICT


@pytest.mark.parametrize("how", [QuantizedModel.clone, copy.copy, copy.deepcopy])
def test_a_copy_has_no_verdict_and_is_the_same_model(
    how: Callable[[QuantizedModel], QuantizedModel], made: QuantizedModel
) -> None:
    copied = how(made)
    assert isinstance(copied, QuantizedModel)
    assert copied.verdict is None
    assert model_hash(copied) == model_hash(made)
    edit_name(copied)
    assert made.verdict == VERDICT


def test_pickle_keeps_model_and_verdict(made: QuantizedModel) -> None:
    again = pickle.loads(pickle.dumps(made))
    assert model_hash(again) == model_hash(made)
    assert again.verdict == VERDICT
    edit_name(made)
    assert pickle.loads(pickle.dumps(made)).verdict is None


def test_repr_is_one_line(made: QuantizedModel) -> None:
    assert repr(made) == "<QuantizedModel 'example', 23 nodes, format qdq>"


def test_print_says_the_verdict(made: QuantizedModel) -> None:
    assert str(made) == str(made.verdict)
    assert str(made.clone()) == f"{made.clone()!r}, without a verdict"


def test_save_says_what_it_wants(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a str; wanted onnxq.save\(model, path\)"):
        onnxq.save("m.onnx", tmp_path / "q.onnx")  # type: ignore[arg-type]


def test_dynamic_quantization_returns_one_too() -> None:
    assert isinstance(onnxq.quantize_dynamic(network(), objective="size"), QuantizedModel)
