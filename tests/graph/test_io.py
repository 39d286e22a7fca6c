from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnxq.errors import ModelError
from onnxq.graph.io import load, model_hash, save
from tests.examples import tensor_of

if TYPE_CHECKING:
    from pathlib import Path

W = np.arange(900, dtype=np.float32).reshape(30, 30)


def proto_of(opset: int = 21, domain: str = "") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")],
        "g",
        [helper.make_tensor_value_info("x", 1, ["N", 30])],
        [helper.make_tensor_value_info("y", 1, ["N", 30])],
        [onnx.numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8
    )


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weight is in model.data."""
    path = tmp_path / "model.onnx"
    onnx.save(proto_of(), path, save_as_external_data=True, location="model.data", size_threshold=0)
    return path


def test_path_proto_and_model_give_the_same_model(tmp_path: Path) -> None:
    proto = proto_of()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    models = [load(path), load(str(path)), load(proto)]
    assert len({model_hash(m) for m in models}) == 1
    assert load(models[0]) is models[0]


def test_external_data_is_mapped_not_read(external: Path) -> None:
    tensor = load(external).graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    np.testing.assert_array_equal(tensor.numpy(), W)
    assert not tensor.numpy().flags.owndata


def test_external_data_is_found_from_another_working_folder(
    external: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(external.parent)
    model = load("model.onnx")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(tensor_of(model.graph.initializers["w"]).numpy(), W)


def test_an_output_of_maps_is_refused_with_the_option_that_leaves_them_out() -> None:
    maps = onnx.ValueInfoProto(name="probabilities")
    maps.type.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    zipped = helper.make_node("ZipMap", ["x"], ["probabilities"], domain="ai.onnx.ml")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    made = helper.make_model(helper.make_graph([zipped], "g", [x], [maps]))
    with pytest.raises(ModelError, match=r"'probabilities' holds maps.*'zipmap': False"):
        load(made)


def test_a_missing_file_is_named_with_a_neighbour_that_looks_like_it(tmp_path: Path) -> None:
    (tmp_path / "resnet20.onnx").write_bytes(b"")
    with pytest.raises(
        ModelError, match=r"resnet2O.onnx': no such file. Did you mean 'resnet20.onnx'"
    ):
        load(tmp_path / "resnet2O.onnx")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"import torch\nmodel = 3\n", "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid 1", "Git LFS"),
        (np.random.default_rng(3).bytes(5000), "not an ONNX model"),
        (b"\x00" * 100, "not an ONNX model"),
        (proto_of().SerializeToString()[:-100], "truncated"),
        (proto_of().SerializeToString()[:40], "truncated"),
    ],
    ids=["empty", "text", "lfs", "random", "zeros", "cut at the end", "cut at the start"],
)
def test_a_file_that_is_no_model_is_refused_with_the_reason(
    data: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=f"bad.onnx' cannot be read: .*{reason}"):
        load(path)
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("cut", [1, 20, 200, 3000])
def test_every_truncation_is_a_model_error(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(proto_of().SerializeToString()[:-cut])
    with pytest.raises(ModelError):
        load(path)


@pytest.mark.parametrize("offset", ["-4", "four"])
def test_an_offset_that_is_no_number_from_0_is_told(offset: str, tmp_path: Path) -> None:
    proto = proto_of()
    tensor = proto.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "model.data")
    tensor.external_data.add(key="offset", value=offset)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=f"offset|'{offset}'"):
        load(path)


def test_missing_external_data_is_named(external: Path) -> None:
    (external.parent / "model.data").unlink()
    with pytest.raises(ModelError, match=r"model\.data' is missing \(tensor 'w'"):
        load(external)


def test_external_data_that_is_too_short_is_named(external: Path) -> None:
    data = external.parent / "model.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(
        ModelError, match=r"model\.data' is too short: it has 3599 bytes.*'w'.*3600"
    ):
        load(external)


def test_external_data_outside_the_folder_is_refused(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    data = external.parent / "model.data"
    inner = external.parent / "inner"
    inner.mkdir()
    proto.graph.initializer[0].external_data[0].value = f"../{data.name}"
    (inner / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(inner / "m.onnx")


def test_external_data_of_a_wrong_length_is_refused(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    proto.graph.initializer[0].dims[0] = 29
    external.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"'w' is said to have 3600 bytes.*want 3480"):
        load(external)


def test_a_proto_without_its_external_data_says_give_the_path(
    external: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(ModelError, match="path of the model"):
        load(onnx.load(external, load_external_data=False))


@pytest.mark.parametrize(("opset", "word"), [(6, "too old"), (27, "too new")])
def test_the_opset_must_be_known(opset: int, word: str) -> None:
    with pytest.raises(ModelError, match=rf"opset {opset} of domain ai\.onnx is {word}.*7 to 26"):
        load(proto_of(opset))
    with pytest.raises(ModelError, match=word):
        load(ir.from_proto(proto_of(opset)))


def test_a_model_without_an_opset_is_refused() -> None:
    with pytest.raises(ModelError, match=r"no opset of domain ai\.onnx"):
        load(proto_of(1, "com.example"))


def test_the_long_name_of_the_domain_is_understood() -> None:
    assert load(proto_of(21, "ai.onnx")).opset_imports == {"": 21}


def test_sparse_weights_are_refused_by_name() -> None:
    proto = proto_of()
    values = helper.make_tensor("sp", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    with pytest.raises(ModelError, match="'sp' is sparse"):
        load(proto)
    constant = helper.make_node(
        "Constant", [], ["k"], sparse_value=helper.make_sparse_tensor(values, indices, [3])
    )
    del proto.graph.sparse_initializer[:]
    proto.graph.node.insert(0, constant)
    with pytest.raises(ModelError, match="'k' is sparse; only dense weights"):
        load(proto)


def test_nodes_out_of_order_are_sorted() -> None:
    proto = proto_of()
    proto.graph.node.insert(0, helper.make_node("Relu", ["y0"], ["y"]))
    proto.graph.node[1].output[0] = "y0"
    assert [n.op_type for n in load(proto).graph] == ["MatMul", "Relu"]


def test_nodes_that_only_a_body_reads_are_sorted_too() -> None:
    """ONNX Runtime's quantizer writes the Loop before what its body reads from outside."""
    proto = proto_of()
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Relu", ["y0"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, 1, ["N", 30])],
        )
        for name in ("then", "else")
    }
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    proto.graph.node.insert(0, helper.make_node("If", ["c"], ["y"], **branches))
    proto.graph.node[1].output[0] = "y0"
    model = load(proto)
    assert [n.op_type for n in model.graph] == ["MatMul", "If"]
    assert len(model.clone().graph) == 2
    last = model.graph.node(1)
    model.graph.remove(last)
    model.graph.insert_before(model.graph.node(0), last)
    with pytest.raises(ModelError, match=r"output of a later node. Call model\.graph\.sort\(\)"):
        load(model)


def test_nodes_that_read_each_other_are_refused() -> None:
    proto = proto_of()
    proto.graph.node.insert(0, helper.make_node("Add", ["y0", "x"], ["y"]))
    proto.graph.node.insert(1, helper.make_node("Relu", ["y"], ["y0"]))
    del proto.graph.node[2]
    with pytest.raises(ModelError, match="in a circle"):
        load(proto)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    model = load(proto_of())
    save(model, tmp_path / "m.onnx")
    assert model_hash(load(tmp_path / "m.onnx")) == model_hash(model)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
