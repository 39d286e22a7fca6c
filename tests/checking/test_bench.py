from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.checking.bench import bench, external_files, size_bytes
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.io import load
from tests.examples import images, network, save

if TYPE_CHECKING:
    from pathlib import Path

FLOAT = np.dtype(np.float32)


def test_bench_times_both_models(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    result = bench(path, path, batch_size=2, runs=3)
    assert result.runs == 3
    assert result.speedup == result.float_ms / result.quantized_ms
    assert result.float_bytes == path.stat().st_size
    assert result.input_shapes == {"x": (2, 3, 8, 8)}
    assert result.execution.integer_nodes == {}


def test_bench_runs_the_first_batch_of_the_samples(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    samples = [{"x": images(3)}]
    assert bench(path, path, samples, runs=1).input_shapes == {"x": (3, 3, 8, 8)}
    with pytest.raises(CalibrationError):
        bench(path, path, [], runs=1)


def test_models_with_inputs_of_other_types_are_refused(tmp_path: Path) -> None:
    half = save(network(dtype=onnx.TensorProto.FLOAT16), tmp_path / "half.onnx")
    single = save(network(), tmp_path / "single.onnx")
    with pytest.raises(ModelError, match=r"x \(float16\).*x \(float32\)"):
        bench(half, single, runs=1)


def test_models_with_other_inputs_are_refused(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    other = network()
    other.graph.input[0].name = other.graph.node[0].input[0] = "z"
    with pytest.raises(ModelError, match="inputs"):
        bench(path, save(other, tmp_path / "o.onnx"), runs=1)


def test_size_counts_external_data(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert external_files(load(path)) == [tmp_path / "w.bin"]
    assert size_bytes(path) == path.stat().st_size + (tmp_path / "w.bin").stat().st_size


def test_external_data_of_an_attribute_count_too(tmp_path: Path) -> None:
    value = onnx.numpy_helper.from_array(np.ones(2, np.float32), "k")
    nodes = [
        onnx.helper.make_node("Constant", [], ["k"], value=value),
        onnx.helper.make_node("Add", ["x", "k"], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    graph = onnx.helper.make_graph(nodes, "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    onnx.external_data_helper.convert_model_to_external_data(
        model, location="w.bin", size_threshold=0, convert_attribute=True
    )
    onnx.save(model, tmp_path / "m.onnx")
    assert external_files(load(tmp_path / "m.onnx")) == [tmp_path / "w.bin"]


def test_texts_are_made_up(tmp_path: Path) -> None:
    proto = network()
    proto.graph.input.append(helper.make_tensor_value_info("text", TensorProto.STRING, ["N"]))
    proto.graph.output.append(helper.make_tensor_value_info("same", TensorProto.STRING, ["N"]))
    proto.graph.node.append(helper.make_node("Identity", ["text"], ["same"]))
    path = save(proto, tmp_path / "m.onnx")
    assert bench(path, path, runs=1).input_shapes["text"] == (1,)
