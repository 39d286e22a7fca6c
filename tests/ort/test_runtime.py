from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.errors import CalibrationError, ModelError
from onnxq.ort import runtime
from onnxq.ort.runtime import Memory, NodeKind, Optimization
from tests.examples import model, weights
from tests.ort.small_models import matmul_model, matmul_proto, matmul_weight, parsed

if TYPE_CHECKING:
    from pathlib import Path

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)


def test_a_model_runs_from_memory_and_from_a_path_alike(tmp_path: Path) -> None:
    onnx.save(matmul_proto(matmul_weight()), tmp_path / "net.onnx")
    with (
        runtime.open_session(matmul_model()) as ours,
        runtime.open_session(tmp_path / "net.onnx") as theirs,
    ):
        assert (ours.inputs, ours.outputs) == (("x",), ("y",))
        np.testing.assert_array_equal(ours.run({"x": X})[0], theirs.run({"x": X})[0])


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_a_path_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net\udcff.onnx"
    path.write_bytes(matmul_proto(matmul_weight()).SerializeToString())
    with pytest.raises(ModelError, match="surrogates not allowed"):
        runtime.open_session(path)


def test_weights_mapped_from_an_external_file_run(tmp_path: Path) -> None:
    onnx.save_model(
        matmul_proto(matmul_weight()),
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="net.data",
    )
    model = ir.load(tmp_path / "net.onnx")
    assert isinstance(model.graph.initializers["w"].const_value, ir.ExternalTensor)
    with runtime.open_session(model) as session:
        [y] = session.run({"x": X})
    # sums of 16 products below 4 in size: an ulp or two of 16
    assert np.abs(y - np.maximum(X @ matmul_weight(), 0)).max() < 1e-5


def test_results_outlive_the_session_and_later_runs() -> None:
    with runtime.open_session(matmul_model()) as session:
        first = session.run({"x": X})[0]
        copy = first.copy()
        session.run({"x": -X})
    np.testing.assert_array_equal(first, copy)


@pytest.mark.parametrize("optimization", Optimization)
def test_every_level_runs(optimization: Optimization) -> None:
    with runtime.open_session(matmul_model(), threads=1, optimization=optimization) as session:
        assert session.run({"x": X})[0].shape == (1, 256)


@pytest.mark.parametrize("memory", Memory)
def test_both_ways_to_get_memory_give_the_same(memory: Memory) -> None:
    with runtime.open_session(matmul_model(), memory=memory) as session:
        for count in (1, 5, 2):
            y = np.asarray(session.run({"x": np.repeat(X, count, 0)})[0], np.float32)
            # sums of 16 products below 4 in size: an ulp or two of 16
            assert np.abs(y - np.maximum(X @ matmul_weight(), 0)).max() < 1e-5


def test_single_outputs_can_be_asked_for() -> None:
    model = parsed("g (float[2] x) => (float[2] a, float[2] b) { a = Neg(x) b = Abs(x) }")
    with runtime.open_session(model) as session:
        [b] = session.run({"x": np.array([-1, 2], np.float32)}, ["b"])
        assert session.run({"x": np.array([-1, 2], np.float32)}, []) == []
    np.testing.assert_array_equal(b, [1, 2])


def test_an_output_that_is_named_twice_is_given_once() -> None:
    model = parsed("g (float[2] x) => (float[2] a, float[2] a) { a = Neg(x) }")
    with runtime.open_session(model) as session:
        results = session.run({"x": np.array([-1, 2], np.float32)})
        assert session.outputs == ("a",)
        assert len(results) == 1


def test_outputs_are_given_by_name_and_by_other_names() -> None:
    x = np.ones((1, 16), np.float32)
    with runtime.open_session(matmul_model()) as session:
        (name,), (y,) = session.outputs, session.run({"x": x})
        named = session.run_named({"x": x})
        twice = session.run_named({"x": x}, {"a": name, "b": name})
        assert session.run_named({"x": x}, []) == {}
    assert [*named, *twice] == [name, "a", "b"]
    for given in (*named.values(), *twice.values()):
        np.testing.assert_array_equal(given, y)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no such file"):
        runtime.open_session(tmp_path / "none.onnx")


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_batch_first_recurrences_are_refused_in_words(op_type: str, gates: int) -> None:
    node = helper.make_node(op_type, ["x", "w", "r"], ["y"], "n", hidden_size=2, layout=1)
    constants = {"w": weights(0, 1, 2 * gates, 3), "r": weights(1, 1, 2 * gates, 2)}
    source = ir.from_proto(model([node], constants, {"x": [1, 4, 3]}))
    with pytest.raises(ModelError, match=r"has no LSTM, GRU or RNN with layout=1.*layout=0"):
        runtime.open_session(source)


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_text("no model")
    with pytest.raises(ModelError, match="does not accept it"):
        runtime.open_session(path)


def test_an_operator_that_is_not_registered_is_told_apart() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21, "mine" : 1]> g (float[2] x) => (float[2] y)'
    source = ir.from_onnx_text(f"{text} {{ y = mine.Foo(x) }}")
    with pytest.raises(ModelError, match=r"mine:Foo.*--stats.*--no-verdict"):
        runtime.open_session(source)


def test_a_graph_that_onnx_runtime_refuses_is_an_error() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { y = NoSuchOperator(x) }")
    with pytest.raises(ModelError, match="NoSuchOperator"):
        runtime.open_session(model)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"xx": X}, "no input 'xx'; it has x.*Did you mean 'x'"),
        ({}, "input 'x' is missing; got none"),
        ({"x": X[0]}, "does not run on inputs.*Invalid rank"),
        ({"x": X.astype(np.float64)}, "float64.*Unexpected input data type"),
        ({"x": X[:, :3]}, "does not run on inputs"),
    ],
)
def test_feeds_that_do_not_suit_are_errors(
    feeds: dict[str, npt.NDArray[np.generic]], message: str
) -> None:
    with (
        runtime.open_session(matmul_model()) as session,
        pytest.raises(CalibrationError, match=f"(?s){message}"),
    ):
        session.run(feeds)


def test_a_closed_session_says_so() -> None:
    session = runtime.open_session(matmul_model())
    session.close()
    with pytest.raises(CalibrationError, match="the session is closed"):
        session.run({"x": X})


def _quantized() -> ir.Model:
    """DQ -> MatMul -> Q, which ONNX Runtime fuses."""
    integers = np.arange(-64, 64, dtype=np.int8).reshape(16, 8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "s", "zw"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["m"], name="matmul"),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "s", "z"], ["y"]),
    ]
    constants = {"s": np.float32(0.1), "z": np.uint8(128), "zw": np.int8(0), "w": integers}
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 8])],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def test_the_optimized_graph_shows_what_runs_in_integers() -> None:
    uses = runtime.integer_nodes(runtime.optimized_graph(_quantized()))
    assert Counter(use.kind for use in uses) == {
        NodeKind.INTEGER: 1,
        NodeKind.CONVERSION: 2,
    }
    assert runtime.count(uses, NodeKind.INTEGER) == {"QLinearMatMul": 1}


def test_the_optimized_graph_of_a_path_leaves_no_file(tmp_path: Path) -> None:
    ir.save(_quantized(), tmp_path / "net.onnx")
    optimized = runtime.optimized_graph(tmp_path / "net.onnx")
    assert any(node.op_type == "QLinearMatMul" for node in optimized.graph)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_optimized_graphs_beyond_the_protobuf_limit_keep_their_weights_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "SEPARATE_BYTES", 1000)
    optimized = runtime.optimized_graph(matmul_model())
    [weight] = [v.const_value for v in optimized.graph.initializers.values()]
    assert isinstance(weight, ir.ExternalTensor)
    np.testing.assert_array_equal(weight.numpy(), matmul_weight())


@pytest.mark.nightly
def test_a_full_disk_for_temporary_files_is_named() -> None:
    code = (
        "import resource; from tests.examples import network\n"
        "from onnxq.errors import OutputError; from onnxq.graph.io import load\n"
        "from onnxq.ort.runtime import optimized_graph\n"
        "model = load(network()); resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: optimized_graph(model)\n"
        "except OutputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "set TMPDIR to another folder" in done.stdout
