from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxq.errors import ModelError
from onnxq.graph import saving
from onnxq.graph.annotations import Annotations
from onnxq.graph.hashing import model_hash
from onnxq.graph.io import load, save
from onnxq.graph.types import infer_types
from tests.examples import tensor_of

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array
    from tests.graph.conftest import Parse, Run

RNG = np.random.default_rng(0)
W = RNG.normal(size=(40, 40)).astype(np.float32)
TEXT = "g (float[N,40] x) => (float[N,40] y) { a = MatMul(x, w) b = MatMul(a, v) y = Add(b, c) }"


@pytest.fixture
def model(parse: Parse) -> ir.Model:
    return parse(TEXT, {"w": W, "c": np.ones(40, np.float32), "v": W.T.copy()})


@pytest.fixture
def external(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as one that needs external data."""
    monkeypatch.setattr(saving, "EXTERNAL_BYTES", 0)


def data_of(path: Path) -> Path:
    (found,) = path.parent.glob(f"{path.name}.*.data")
    return found


def lazy(array: Array, log: list[int]) -> ir.LazyTensor:
    def evaluate() -> ir.TensorProtocol:
        log.append(1)
        return ir.tensor(array)

    return ir.LazyTensor(evaluate, ir.DataType.FLOAT, ir.Shape(array.shape), name="w")


def test_one_file_that_onnx_and_onnxruntime_read(model: ir.Model, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(model, path)
    onnx.checker.check_model(path, full_check=True)
    x = RNG.normal(size=(3, 40)).astype(np.float32)
    got = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_array_equal(got, run(model, {"x": x})[0])
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_says_the_same_as_onnx_would(model: ir.Model, tmp_path: Path) -> None:
    model.metadata_props["k"] = "v"
    model.graph.doc_string = "doc"
    save(model, tmp_path / "m.onnx")
    got, wanted = onnx.load(tmp_path / "m.onnx"), ir.to_proto(model)
    assert [t.name for t in got.graph.initializer] == ["w", "c", "v"]
    for proto in (got, wanted):  # raw_data or float_data: two spellings of one tensor
        for tensor in proto.graph.initializer:
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name)
            )
    del wanted.graph.value_info[:]  # all of initializers
    assert got == wanted


def test_saving_changes_nothing_in_the_model(model: ir.Model, tmp_path: Path) -> None:
    before, tensor = model_hash(model), model.graph.initializers["w"].const_value
    save(model, tmp_path / "m.onnx")
    assert model_hash(model) == before
    assert model.graph.initializers["w"].const_value is tensor


def test_lazy_weights_are_evaluated_once(model: ir.Model, tmp_path: Path) -> None:
    log: list[int] = []
    model.graph.initializers["w"].const_value = lazy(W, log)
    save(model, tmp_path / "m.onnx")
    assert len(log) == 1
    np.testing.assert_array_equal(
        tensor_of(load(tmp_path / "m.onnx").graph.initializers["w"]).numpy(), W
    )


def test_every_element_type_survives(parse: Parse, tmp_path: Path) -> None:
    arrays = {
        f"t{i}": RNG.integers(0, 2, 3001).astype(dtype)
        for i, dtype in enumerate(
            ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
        )
    }
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", arrays)
    int4 = ir.Tensor(RNG.integers(-8, 8, 5001).astype(ir.DataType.INT4.numpy()), name="int4")
    strings = ir.StringTensor([b"a", b"bc"], shape=ir.Shape([2]), name="strings")
    for tensor in (int4, strings):
        model.graph.register_initializer(
            ir.Value(
                name=tensor.name,
                type=ir.TensorType(tensor.dtype),
                shape=tensor.shape,
                const_value=tensor,
            )
        )
    save(model, tmp_path / "m.onnx")
    got = load(tmp_path / "m.onnx")
    assert model_hash(got) == model_hash(model)
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensor_of(got.graph.initializers[name]).numpy(), array)


@pytest.mark.usefixtures("external")
def test_big_models_get_one_data_file_named_after_them(model: ir.Model, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(model, path)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert [re.sub("[0-9a-f]{8}", "N", name) for name in names] == ["m.onnx", "m.onnx.N.data"]
    onnx.checker.check_model(path)
    assert model_hash(load(path)) == model_hash(model)
    tensors = {t.name: t for t in onnx.load(path, load_external_data=False).graph.initializer}
    assert {n for n, t in tensors.items() if t.external_data} == {"w", "v"}
    x = RNG.normal(size=(3, 40)).astype(np.float32)
    ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})


def test_large_decoders_and_models_on_request_get_a_data_file(
    parse: Parse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(saving, "DECODER_BYTES", 0)
    other, decoder = (
        parse(
            f"g (float[N,64] {x}) => (float[N,64] y) {{ y = MatMul({x}, w) }}",
            {"w": np.ones((64, 64), np.float32)},
        )
        for x in ("x", "past")
    )
    decoder.graph.inputs[0].name = "past_key_values.0.key"
    for each, inline_bytes, beside in ((other, None, 0), (decoder, None, 1), (other, 0, 1)):
        path = tmp_path / f"{beside}{inline_bytes}" / "m.onnx"
        path.parent.mkdir()
        save(each, path, inline_bytes=inline_bytes)
        assert len(list(path.parent.glob("*.data"))) == beside


@pytest.mark.usefixtures("external")
def test_tied_weights_are_stored_once(parse: Parse, tmp_path: Path) -> None:
    tensor = ir.tensor(W)
    model = parse(TEXT, {"w": W, "c": np.ones(40, np.float32), "v": W})
    for name in ("w", "v"):
        model.graph.initializers[name].const_value = tensor
    save(model, tmp_path / "m.onnx")
    assert data_of(tmp_path / "m.onnx").stat().st_size == W.nbytes


@pytest.mark.usefixtures("external")
def test_a_model_with_external_data_becomes_one_file(
    model: ir.Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save(model, tmp_path / "big.onnx")
    loaded = load(tmp_path / "big.onnx")
    monkeypatch.undo()
    other = tmp_path / "other"
    other.mkdir()
    save(loaded, other / "m.onnx")
    assert [p.name for p in other.iterdir()] == ["m.onnx"]
    assert model_hash(load(other / "m.onnx")) == model_hash(model)


@pytest.mark.usefixtures("external")
def test_external_data_moves_under_the_new_name(model: ir.Model, tmp_path: Path) -> None:
    save(model, tmp_path / "a.onnx")
    save(load(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    data_of(tmp_path / "a.onnx").unlink()
    (tmp_path / "a.onnx").unlink()
    assert model_hash(load(tmp_path / "b.onnx")) == model_hash(model)


def test_external_constants_in_attributes_come_along(parse: Parse, tmp_path: Path) -> None:
    (tmp_path / "k.data").write_bytes(W.tobytes())
    tensor = ir.ExternalTensor(
        "k.data",
        0,
        W.nbytes,
        ir.DataType.FLOAT,
        shape=ir.Shape(W.shape),
        name="k",
        base_dir=tmp_path,
    )
    model = parse(
        "g (float[N,40] x) => (float[N,40] y) { k = Constant<value_float=1.0>() y = MatMul(x, k) }"
    )
    node = model.graph.node(0)
    node.attributes.clear()
    node.attributes["value"] = ir.AttrTensor("value", tensor)
    other = tmp_path / "other"
    other.mkdir()
    save(model, other / "m.onnx")
    got = load(other / "m.onnx").graph.node(0).attributes["value"].as_tensor()
    np.testing.assert_array_equal(got.numpy(), W)
    assert node.attributes["value"].as_tensor() is tensor


@pytest.mark.parametrize("big", [False, True])
def test_a_weight_that_fails_leaves_the_old_file_and_nothing_else(
    big: bool, model: ir.Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if big:
        monkeypatch.setattr(saving, "EXTERNAL_BYTES", 0)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")

    def fail() -> NoReturn:
        raise ModelError("no weight today")

    model.graph.initializers["v"].const_value = ir.LazyTensor(
        fail, ir.DataType.FLOAT, ir.Shape([40, 40]), name="v"
    )
    with pytest.raises(ModelError, match="no weight today"):
        save(model, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_weight_of_the_wrong_size_is_an_error(model: ir.Model, tmp_path: Path) -> None:
    model.graph.initializers["w"].const_value = ir.LazyTensor(
        lambda: ir.tensor(W[:20]), ir.DataType.FLOAT, ir.Shape([40, 40]), name="w"
    )
    with pytest.raises(ModelError, match=r"'w'.*3200 bytes.*6400"):
        save(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("external")
def test_weights_of_branches_are_saved(parse: Parse, tmp_path: Path) -> None:
    model = parse(
        """g (bool c, float[2,40] x) => (float[2,40] y) {
        y = If(c) <then_branch = t () => (float[2,40] p) { p = MatMul(x, u) },
                   else_branch = e () => (float[2,40] q) { q = Neg(x) }> }""",
        {"u": W},
    )
    branch = model.graph.node(0).attributes["then_branch"].as_graph()
    value = model.graph.initializers.pop("u")
    branch.register_initializer(value)
    save(model, tmp_path / "m.onnx")
    assert data_of(tmp_path / "m.onnx").stat().st_size == W.nbytes
    assert model_hash(load(tmp_path / "m.onnx")) == model_hash(model)


def test_value_info_is_of_what_is_computed_alone(parse: Parse, tmp_path: Path) -> None:
    """onnxruntime.quantization.quantize_dynamic fails on models that have it of weights."""
    model = parse(
        """g (float[N,40] x, bool k) => (float[N,40] y) { a = Gemm<transB=1>(x, w)
        y = If (k) <then_branch = t () => (float[N,40] p) <float[1] u = {2.0}> {
              m = Mul(a, u) p = Neg(m) },
            else_branch = e () => (float[N,40] q) { q = Abs(a) }> }""",
        {"w": W[:, :40]},
    )
    infer_types(model)
    for graph in model.graphs():
        for value in graph.initializers.values():
            value.metadata_props["pkg.torch.onnx.original_node_name"] = "p_w"
    save(model, tmp_path / "m.onnx", Annotations.KEPT)
    proto = onnx.load(tmp_path / "m.onnx")
    assert [info.name for info in proto.graph.value_info] == ["a"]
    (branch,) = (a.g for n in proto.graph.node for a in n.attribute if a.name == "then_branch")
    assert [info.name for info in branch.value_info] == ["m"]
    onnx.checker.check_model(proto, full_check=True)


def test_data_outside_of_its_folder_are_not_copied(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    folder = tmp_path / "models"
    folder.mkdir()
    secret = ir.ExternalTensor(
        "../secret.bin", 0, 16, ir.DataType.FLOAT, shape=ir.Shape([4]), name="w", base_dir=folder
    )
    w = ir.val("w", ir.DataType.FLOAT, [4], const_value=secret)
    node = ir.node("Relu", [w])
    graph = ir.Graph([], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 21})
    with pytest.raises(ModelError, match="outside the model's folder"):
        save(ir.Model(graph, ir_version=10), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
