from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph import hashing
from onnxq.graph.hashing import model_hash
from onnxq.graph.io import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.core.arrays import Array
    from tests.graph.conftest import Parse

W = np.arange(600, dtype=np.float32).reshape(20, 30)
TEXT = "g (float[N,20] x) => (float[N,30] y) { [mm] a = MatMul(x, w) y = Selu<alpha=1.5>(a) }"


@pytest.fixture
def model(parse: Parse) -> ir.Model:
    return parse(TEXT, {"w": W})


def test_storage_does_not_matter(model: ir.Model, tmp_path: Path) -> None:
    proto, inline = ir.to_proto(model), ir.to_proto(model)
    paths = [tmp_path / "inline.onnx", tmp_path / "external.onnx"]
    onnx.save(proto, paths[0])
    onnx.save(proto, paths[1], save_as_external_data=True, location="w.data", size_threshold=0)
    assert {model_hash(load(p)) for p in paths} == {model_hash(model), model_hash(load(inline))}


def test_raw_data_and_float_data_are_the_same_weight(model: ir.Model) -> None:
    proto = ir.to_proto(model)
    del proto.graph.initializer[:]
    proto.graph.initializer.append(onnx.helper.make_tensor("w", 1, W.shape, W.reshape(-1)))
    assert proto.graph.initializer[0].float_data
    assert model_hash(load(proto)) == model_hash(model)


def test_another_process_computes_the_same(model: ir.Model, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(ir.to_proto(model), path)
    code = f"from onnxq.graph.io import *; print(model_hash(load({str(path)!r})))"
    root = Path(hashing.__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert out.stdout.strip() == model_hash(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m.graph.node(0), "name", "other"),
        lambda m: setattr(m.graph.node(0).outputs[0], "name", "other"),
        lambda m: setattr(m.graph.node(1), "op_type", "Elu"),
        lambda m: m.graph.node(1).attributes.__setitem__("alpha", ir.AttrFloat32("alpha", 2.0)),
        lambda m: m.graph.opset_imports.__setitem__("", 22),
        lambda m: setattr(m.graph.initializers["w"], "const_value", ir.tensor(W + np.float32(1))),
        lambda m: setattr(m.graph.initializers["w"], "const_value", ir.tensor(W.reshape(30, 20))),
        lambda m: setattr(m.graph.initializers["w"], "const_value", ir.tensor(W.view(np.int32))),
        lambda m: setattr(m.graph.inputs[0], "shape", ir.Shape([1, 20])),
    ],
    ids=["node", "tensor", "operator", "attribute", "opset", "weight", "shape", "type", "input"],
)  # fmt: skip
def test_every_change_matters(change: Callable[[ir.Model], object], model: ir.Model) -> None:
    before = model_hash(model)
    change(model)
    assert model_hash(model) != before


def test_metadata_and_inferred_types_do_not_matter(model: ir.Model) -> None:
    before = model_hash(model)
    model.metadata_props["k"] = model.graph.node(0).metadata_props["k"] = "v"
    model.graph.node(0).outputs[0].shape = ir.Shape([None, 30])
    assert model_hash(model) == before


def test_weights_of_branches_matter(parse: Parse) -> None:
    def make(k: int) -> ir.Model:
        return parse(
            f"""g (bool c, float[2] x) => (float[2] y) {{
            y = If(c) <then_branch = t ()
                => (float[2] p) {{ k = Constant<value = float {{{k}}}>() p = Add(x, k) }},
                       else_branch = e () => (float[2] q) {{ q = Neg(x) }}> }}"""
        )

    assert model_hash(make(1)) == model_hash(make(1)) != model_hash(make(2))


def test_a_transposed_weight_is_read_in_chunks(
    model: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = model.graph.initializers["w"]
    value.const_value = ir.tensor(np.ascontiguousarray(W.T).T)
    monkeypatch.setattr(hashing, "CHUNK_BYTES", 256)
    chunks = list(hashing._chunks(value.const_value.numpy()))
    assert len(chunks) == 10
    assert b"".join(c.tobytes() for c in chunks) == W.tobytes()


@pytest.mark.parametrize("array", [np.array(1.5, np.float32), np.zeros((0, 3), np.float32)])
def test_scalars_and_empty_weights_are_hashed(array: Array, parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", {"w": array})
    assert len(model_hash(model)) == 32


def test_strings_and_packed_weights_are_hashed(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    hashes = {model_hash(model)}
    for tensor in (
        ir.StringTensor([b"a", b"bc"], shape=ir.Shape([2]), name="w"),
        ir.StringTensor([b"ab", b"c"], shape=ir.Shape([2]), name="w"),
        ir.Tensor(np.array([1, 2, 3]).astype(ir.DataType.INT4.numpy()), name="w"),
        ir.Tensor(np.array([1, 2, 4]).astype(ir.DataType.INT4.numpy()), name="w"),
    ):
        model.graph.initializers.pop("w", None)
        model.graph.register_initializer(ir.Value(name="w", const_value=tensor))
        hashes.add(model_hash(model))
    assert len(hashes) == 5


def test_floats_of_attributes_count_as_files_hold_them(model: ir.Model) -> None:
    node = model.graph[-1]
    node.attributes.add(ir.AttrFloat32("alpha", 0.9))  # as exporters make it, in double precision
    assert model_hash(model) == model_hash(load(ir.to_proto(model)))
