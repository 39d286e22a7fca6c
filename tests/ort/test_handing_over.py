"""Weights of every type and place reach ONNX Runtime, most of them as the arrays that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.untrusted.external_data import set_folder
from onnxq.ort import runtime
from onnxq.ort.handing_over import IN_MEMORY, INLINE_BYTES, folder_of_weights, hand_over
from tests.ort.small_models import matmul_model, matmul_proto, matmul_weight, parsed

if TYPE_CHECKING:
    from pathlib import Path

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)


def test_large_weights_are_handed_over_as_they_are_and_small_ones_stay() -> None:
    model = matmul_model()
    array = matmul_weight()
    model.graph.initializers["w"].const_value = ir.tensor(array, name="w")
    small = ir.Value(name="b", const_value=ir.tensor(np.zeros(256, np.int8), name="b"))
    model.graph.register_initializer(small)
    model.graph.append(ir.node("Identity", [small]))
    handed = hand_over(model)
    assert list(handed.weights) == ["w"]
    assert np.shares_memory(handed.weights["w"], array)
    [w, b] = onnx.load_from_string(handed.graph).graph.initializer
    assert [(f.key, f.value) for f in w.external_data if f.key == "location"] == [
        ("location", IN_MEMORY)
    ]
    assert not b.external_data


BRANCHES = """g (bool k, float[1,16] x) => (float[1,16] y) {
    y = If (k) <then_branch = a () => (float[1,16] p) { p = Add(x, x) },
                else_branch = b () => (float[1,16] q) { q = Sub(x, x) }> }"""


@pytest.mark.parametrize("size", [16, 2 * INLINE_BYTES])
def test_weights_of_branches_in_external_files_run(size: int, tmp_path: Path) -> None:
    model = parsed(BRANCHES)
    for number, attribute in enumerate(model.graph[0].attributes.values()):
        branch = attribute.as_graph()
        tensor = ir.tensor(np.full(size, 2, np.float32), name=f"w{number}")
        weight = ir.Value(name=tensor.name, const_value=tensor)
        branch.register_initializer(weight)
        top = ir.node("ReduceMax", [weight], {"keepdims": 0})
        branch.insert_before(branch[0], top)
        branch[1].replace_input_with(1, top.outputs[0])
    ir.save(model, tmp_path / "net.onnx", external_data="net.data", size_threshold_bytes=0)
    with runtime.open_session(ir.load(tmp_path / "net.onnx")) as session:
        [added] = session.run({"x": X, "k": np.array(True)})
        [taken] = session.run({"x": X, "k": np.array(False)})
    np.testing.assert_array_equal(added, X + 2)
    np.testing.assert_array_equal(taken, X - 2)


@pytest.mark.parametrize("size", [2, 4096])
@pytest.mark.parametrize("kind", [ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT8])
def test_small_and_packed_weights_in_external_files_run(
    kind: ir.DataType, size: int, tmp_path: Path
) -> None:
    model = parsed("g (float[1] x) => (float[n] y) { d = DequantizeLinear(w, s) y = Mul(x, d) }")
    integers = np.resize(np.array([1, 7]), size).astype(kind.numpy())
    for name, array in (("w", integers), ("s", np.array(0.5, np.float32))):
        value = model.graph[0].inputs[0 if name == "w" else 1]
        assert value is not None
        value.const_value = ir.tensor(array, name=name)
        model.graph.register_initializer(value)
    ir.save(model, tmp_path / "net.onnx", external_data="net.data", size_threshold_bytes=0)
    loaded = ir.load(tmp_path / "net.onnx")
    assert isinstance(loaded.graph.initializers["w"].const_value, ir.ExternalTensor)
    with runtime.open_session(loaded) as session:
        [y] = session.run({"x": np.ones(1, np.float32)})
    np.testing.assert_array_equal(y, np.resize(np.array([0.5, 3.5], np.float32), size))


def test_weights_that_numpy_has_no_type_for_run_too() -> None:
    texts = ir.StringTensor([b"a" * 2000, b"b"], shape=ir.Shape([2]), name="w")
    model = parsed("g (string[2] x) => (bool[2] y) { y = Equal(x, x) }")
    weight = ir.Value(name="w", const_value=texts, type=ir.TensorType(ir.DataType.STRING))
    model.graph.register_initializer(weight)
    model.graph[0].replace_input_with(1, weight)
    with runtime.open_session(model) as session:
        [y] = session.run({"x": np.array(["a", "b"], object)})
    np.testing.assert_array_equal(y, [False, True])
    assert runtime.optimized_graph(model).graph.outputs[0].name == "y"


@pytest.mark.parametrize("kind", [ir.DataType.INT4, ir.DataType.BFLOAT16])
def test_packed_and_extended_types_are_handed_over(kind: ir.DataType) -> None:
    model = parsed("g (float[4096] x, float s) => (y) { w = Identity(x) y = Cast<to = 1>(w) }")
    values = ir.tensor(np.arange(4096).astype(np.float32) % 8).numpy().astype(kind.numpy())
    weight = ir.Value(name="c", const_value=ir.Tensor(values, dtype=kind, name="c"))
    weight.type = ir.TensorType(kind)
    model.graph.register_initializer(weight)
    model.graph[1].replace_input_with(0, weight)
    with runtime.open_session(model) as session:
        [y] = session.run({"x": np.zeros(4096, np.float32), "s": np.array(1, np.float32)})
    np.testing.assert_array_equal(y, np.arange(4096) % 8)


def test_an_initializer_that_nothing_reads_does_no_harm() -> None:
    proto = matmul_proto(matmul_weight())
    proto.graph.initializer.append(onnx.numpy_helper.from_array(matmul_weight(), "unused"))
    source = ir.from_proto(proto)
    with runtime.open_session(source) as session:
        assert session.run({"x": X})[0].shape == (1, 256)
    assert "unused" in source.graph.initializers


def test_opening_leaves_the_model_as_it_is() -> None:
    model = matmul_model()
    array = matmul_weight()
    model.graph.initializers["w"].const_value = ir.tensor(array, name="w")
    weight = model.graph.initializers["w"].const_value
    runtime.open_session(model).close()
    assert model.graph.initializers["w"].const_value is weight


def test_weights_in_files_of_a_folder_stay_references(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tables = {name: rng.normal(size=(40, 16)).astype(np.float32) for name in ("a", "b")}
    (tmp_path / "weights").write_bytes(tables["a"].tobytes())
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (int64[n] x, float[40, 16] a, float[40, 16] b) => (float[n, 16] y) {
            c = Gather (a, x)
            d = Gather (b, x)
            y = Add (c, d)
        }""")
    )
    for value in list(model.graph.inputs[1:]):
        name = str(value.name)
        size, shape = tables[name].nbytes, ir.Shape([40, 16])
        value.const_value = (
            ir.ExternalTensor("weights", 0, size, ir.DataType.FLOAT, shape=shape, name=name)
            if name == "a"
            else ir.tensor(tables[name], name=name)
        )
        model.graph.register_initializer(value)
    del model.graph.inputs[1:]
    set_folder(model, tmp_path)
    assert folder_of_weights(model) == tmp_path
    assert [*hand_over(model, tmp_path).weights] == ["b"]
    assert [*hand_over(model).weights] == ["a", "b"]
    x = np.array([3, 0])
    for weights in runtime.Weights:
        with runtime.open_session(model, threads=1, weights=weights) as session:
            (y,) = session.run({"x": x})
        assert np.array_equal(y, tables["a"][x] + tables["b"][x])


@pytest.mark.parametrize(
    "draw",
    [
        "r = RandomNormalLike(a)",
        "r = RandomUniform<shape = [1, 16]>()",
        "r = Bernoulli(p)",
        "t = Constant<value = bool {1}>() r = Dropout(a, p, t)",
    ],
)
@pytest.mark.parametrize("name", ["draw", None])
def test_nodes_that_draw_numbers_draw_the_same_in_two_models(draw: str, name: str | None) -> None:
    drawn = []
    for before in ("a = Identity(x)", "i = Identity(x) a = Identity(i)"):
        text = f"g (float[1,16] x, float p) => (float[1,16] r) {{ {before} {draw} }}"
        if "Bernoulli" in draw:
            text = text.replace("float p", "float[1,16] p")
        model = parsed(text)
        node = model.graph.node(-1)
        node.name = name
        p = np.full((1, 16) if "Bernoulli" in draw else (), 0.5, np.float32)
        with runtime.open_session(model, threads=1) as session:
            drawn.append(session.run({"x": X, "p": p}))
        assert "seed" not in node.attributes
    assert len(np.unique(drawn[0])) > 1
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_nodes_that_draw_numbers_draw_different_ones_in_one_model() -> None:
    text = "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)"
    with runtime.open_session(parsed(f"g (float[1,16] x) => (float[1,16] y) {{ {text} }}")) as run:
        assert np.unique(run.run({"x": X})[0]).size > 1


def test_a_dropout_that_knows_no_seed_gets_none() -> None:
    text = "g (float[1,16] x) => (float[1,16] y) { y = Dropout<ratio = 0.5>(x) }"
    model = parsed(text)
    model.graph.opset_imports[""] = 11
    with runtime.open_session(model, threads=1) as session:
        np.testing.assert_array_equal(session.run({"x": X})[0], X)
