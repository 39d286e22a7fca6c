"""Where the data of a tensor may lie, of a tensor anywhere in a model, whoever hands it in."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.errors import ModelError
from onnxq.graph.io import load
from tests.examples import tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

W = np.arange(16, dtype=np.float32).reshape(4, 4)
NAME = "w.bin"


def external(location: str | bytes, **entries: object) -> onnx.TensorProto:
    """W in a file."""
    tensor = numpy_helper.from_array(W, "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor


def in_graph(tensor: onnx.TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def in_constant(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = in_graph(tensor)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    del model.graph.initializer[:]
    return model


def in_body(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = in_constant(tensor)
    inner = list(model.graph.node)
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    branches = {
        f"{side}_branch": helper.make_graph(inner, side, [], model.graph.output)
        for side in ("then", "else")
    }
    del model.graph.node[:]
    model.graph.initializer.append(yes)
    model.graph.node.append(helper.make_node("If", ["yes"], ["y"], "choice", **branches))
    return model


def in_function(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = in_constant(tensor)
    opsets = [helper.make_opsetid("", 17)]
    body = helper.make_function("f", "layer", ["x"], ["y"], list(model.graph.node), opsets)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("layer", ["x"], ["y"], "call", domain="f"))
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("f", 1))
    return model


PLACES = {
    "initializer": in_graph,
    "constant": in_constant,
    "body": in_body,
    "function": in_function,
}
Place = Callable[[onnx.TensorProto], onnx.ModelProto]


def outside(folder: Path) -> Path:
    """A file that is none of the model's business."""
    path = folder.parent / "secret.bin"
    path.write_bytes(W.tobytes())
    return path


def good(folder: Path) -> Path:
    path = folder / NAME
    path.write_bytes(W.tobytes())
    return path


def absolute(folder: Path) -> onnx.TensorProto:
    return external(str(outside(folder)))


def upwards(folder: Path) -> onnx.TensorProto:
    return external(f"../{outside(folder).name}")


def windows(_: Path) -> onnx.TensorProto:
    return external("..\\secret.bin")


def there_and_back(folder: Path) -> onnx.TensorProto:
    return external(f"../{folder.name}/{good(folder).name}")


def linked(folder: Path) -> onnx.TensorProto:
    (folder / NAME).symlink_to(outside(folder))
    return external(NAME)


def linked_folder(folder: Path) -> onnx.TensorProto:
    (folder / "sub").symlink_to(outside(folder).parent)
    return external("sub/secret.bin")


def hard_linked(folder: Path) -> onnx.TensorProto:
    os.link(outside(folder), folder / NAME)
    return external(NAME)


def fifo(folder: Path) -> onnx.TensorProto:
    os.mkfifo(folder / NAME)
    return external(NAME)


def circle(folder: Path) -> onnx.TensorProto:
    (folder / NAME).symlink_to(NAME)
    return external(NAME)


def within(**entries: object) -> Callable[[Path], onnx.TensorProto]:
    return lambda folder: external(good(folder).name, **entries)


TRAPS: dict[str, tuple[Callable[[Path], onnx.TensorProto], str]] = {
    "an absolute path": (absolute, "outside the model's folder"),
    "a path upwards": (upwards, "outside the model's folder"),
    "a path upwards, of Windows": (windows, "outside the model's folder"),
    "a path that leaves and comes back": (there_and_back, "outside the model's folder"),
    "a link": (linked, "outside the model's folder, at"),
    "a linked folder": (linked_folder, "outside the model's folder, at"),
    "a hard link": (hard_linked, "hard links"),
    "a FIFO": (fifo, "no regular file"),
    "a link to itself": (circle, "cannot be read|is missing"),
    "a folder": (lambda _: external("."), "no regular file"),
    "no name": (lambda _: external(""), "the name of"),
    "a name that ends as a folder's": (lambda _: external(f"{NAME}/"), "the name of"),
    "a name with a zero byte": (lambda _: external("a\0b"), "the name of"),
    "a name of 5,000 characters": (lambda _: external("x" * 5000), "too long"),
    "a file that is not there": (lambda _: external("none.bin"), "is missing"),
    "a negative offset": (within(offset=-4), "not a valid ONNX model"),
    "an offset beyond the end": (within(offset=4), "too short: it has 64 bytes, .* ends at 68"),
    "a huge offset": (within(offset=2**62), "too short"),
    "an offset that is no number": (within(offset="x"), "not a valid ONNX model"),
    "a negative length": (within(length=-4), "not a valid ONNX model"),
    "a length too small": (within(length=60), "said to have 60 bytes .* want 64"),
    "a huge length": (within(length=2**40), "said to have"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def model_path(folder: Path) -> Iterator[Path]:
    yield folder / "m.onnx"
    assert not (folder.parent / "out").exists()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trap", TRAPS)
def test_trap_is_refused_wherever_the_tensor_is(trap: str, place: str, model_path: Path) -> None:
    make, words = TRAPS[trap]
    model = PLACES[place](make(model_path.parent))
    model_path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=words):
        load(model_path)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trap", ["an absolute path", "a path upwards", "a link", "a FIFO"])
def test_trap_in_an_object_is_refused(
    trap: str, place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PLACES[place](TRAPS[trap][0](folder))
    monkeypatch.chdir(folder)  # what a Model of onnx_ir without a folder lies in
    with pytest.raises(ModelError, match=r"outside|no regular file"):
        load(ir.from_proto(model))
    with pytest.raises(ModelError, match="a ModelProto does not say in which folder"):
        load(model)


@pytest.mark.parametrize("place", PLACES)
def test_a_file_beside_the_model_is_mapped(
    place: str, model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good(model_path.parent)
    model_path.write_bytes(PLACES[place](external(NAME, offset=0, length=64)).SerializeToString())
    monkeypatch.chdir("/")  # the model's folder counts, in functions too
    tensors = [t for t in _tensors(load(model_path)) if t.size == W.size]
    assert tensors
    for tensor in tensors:
        np.testing.assert_array_equal(tensor.numpy(), W)


def test_a_link_inside_the_folder_is_followed(model_path: Path) -> None:
    good(model_path.parent).rename(model_path.parent / "blob")
    (model_path.parent / NAME).symlink_to("blob")
    model_path.write_bytes(in_graph(external(NAME)).SerializeToString())
    np.testing.assert_array_equal(next(_tensors(load(model_path))).numpy(), W)


def test_texts_cannot_be_in_a_file(model_path: Path) -> None:
    good(model_path.parent)
    tensor = external(NAME)
    tensor.data_type = TensorProto.STRING
    model_path.write_bytes(in_graph(tensor).SerializeToString())
    with pytest.raises(ModelError, match="only numbers can be"):
        load(model_path)


@pytest.mark.parametrize("trap", ["an absolute path", "a name with a zero byte", "a link"])
def test_an_empty_tensor_may_not_be_elsewhere_either(trap: str, model_path: Path) -> None:
    make, words = TRAPS[trap]
    tensor = make(model_path.parent)
    tensor.dims[0] = 0
    model_path.write_bytes(in_graph(tensor).SerializeToString())
    with pytest.raises(ModelError, match=words):
        load(model_path)


def test_an_empty_tensor_needs_no_file(model_path: Path) -> None:
    tensor = external("none.bin")
    tensor.dims[0] = 0
    model_path.write_bytes(in_graph(tensor).SerializeToString())
    assert next(_tensors(load(model_path))).size == 0


def test_constant_in_a_file_survives_a_change_of_opset(model_path: Path) -> None:
    good(model_path.parent)
    model = in_constant(external(NAME))
    model.opset_import[0].version = 11
    model_path.write_bytes(model.SerializeToString())
    made = onnxq.prepare(model_path).model
    (weight,) = made.graph.initializers.values()
    np.testing.assert_array_equal(tensor_of(weight).numpy(), W)


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    from onnxq.graph.untrusted.scopes import all_tensors

    for _, tensor in all_tensors(model):
        yield tensor
