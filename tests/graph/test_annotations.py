from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.annotations import Annotations, as_written
from onnxq.graph.saving import save
from onnxq.graph.types import infer_types

if TYPE_CHECKING:
    from pathlib import Path

    from tests.graph.conftest import Parse

BODY = """g (float[N,40] x, bool k) => (float[N,4] y) {
    a = MatMul(x, w) b = local.mystery(a) c = Relu(b) d = com.microsoft.Gelu(a) e = Relu(d)
    s = Add(c, e)
    y = If (k) <then_branch = t () => (float[N,4] p) { m = Neg(s) p = Neg(m) },
                else_branch = f () => (float[N,4] q) { q = Abs(s) }> }"""


@pytest.fixture
def model(parse: Parse) -> ir.Model:
    """A model all of whose tensors have types, notes on every node, and one note of onnxq."""
    model = parse(BODY, {"w": np.ones((40, 4), np.float32)})
    model.opset_imports["com.microsoft"] = 1
    infer_types(model)
    for node in model.graph.all_nodes():
        node.doc_string = "line 7"
        node.metadata_props["pkg.torch.onnx.stack_trace"] = "line 7"
        for value in node.outputs:
            value.dtype, value.shape = ir.DataType.FLOAT, ir.Shape(["N", 4])
    next(iter(model.graph)).metadata_props["onnxq.told"] = "kept"
    model.metadata_props["author"] = "me"
    return model


def infos(proto: onnx.ModelProto) -> list[str]:
    graphs = [proto.graph, *(a.g for n in proto.graph.node for a in n.attribute if a.HasField("g"))]
    return [info.name for graph in graphs for info in graph.value_info]


def test_types_stay_where_inference_does_not_find_them_again(
    model: ir.Model, tmp_path: Path
) -> None:
    save(model, tmp_path / "m.onnx")
    # of an operator that nobody knows; Gelu is known to ONNX Runtime, though not to onnx
    assert infos(onnx.load(tmp_path / "m.onnx")) == ["b"]


def test_a_copy_has_the_types_of_the_file(model: ir.Model, tmp_path: Path) -> None:
    save(model, tmp_path / "m.onnx")
    copy = as_written(model)
    assert set(infos(ir.to_proto(copy))) - {"w"} == {*infos(onnx.load(tmp_path / "m.onnx"))}
    assert len(infos(ir.to_proto(model))) > 1, "the model itself stays as it is"


def test_sizes_stay_that_inference_does_not_find(parse: Parse, tmp_path: Path) -> None:
    model = parse("g (float[N] x, int64[2] s) => (float[A,B] y) { r = Reshape(x, s) y = Neg(r) }")
    infer_types(model)
    save(model, tmp_path / "m.onnx")
    assert infos(onnx.load(tmp_path / "m.onnx")) == []
    model.graph.node(0).outputs[0].shape = ir.Shape([None, 8])
    save(model, tmp_path / "m.onnx")
    assert infos(onnx.load(tmp_path / "m.onnx")) == ["r"]


def test_notes_of_exporters_go_and_those_of_onnxq_and_the_author_stay(
    model: ir.Model, tmp_path: Path
) -> None:
    save(model, tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    assert not any(node.doc_string for node in proto.graph.node)
    notes = [(entry.key, entry.value) for node in proto.graph.node for entry in node.metadata_props]
    assert notes == [("onnxq.told", "kept")]
    assert [entry.key for entry in proto.metadata_props] == ["author"]


def test_all_of_it_is_written_where_it_is_asked_for(model: ir.Model, tmp_path: Path) -> None:
    save(model, tmp_path / "m.onnx", Annotations.KEPT)
    proto = onnx.load(tmp_path / "m.onnx")
    assert infos(proto) == ["a", "b", "c", "d", "e", "s", "m"]
    assert all(node.doc_string == "line 7" for node in proto.graph.node)


def test_a_model_that_inference_refuses_keeps_its_types(model: ir.Model, tmp_path: Path) -> None:
    del model.opset_imports["com.microsoft"]
    save(model, tmp_path / "m.onnx")
    assert infos(onnx.load(tmp_path / "m.onnx")) == ["a", "b", "c", "d", "e", "s", "m"]
