from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.checking.bench import bench
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.given_file import external_files
from onnxq.graph.io import load, size_bytes
from onnxq.samples import Samples
from tests.examples import images, network, save

if TYPE_CHECKING:
    from pathlib import Path

FLOAT = np.dtype(np.float32)


def test_bench_times_both_models(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    result = bench(path, path, Samples(batch_size=2), runs=3)
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
    other = network()
    other.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match=r"x \(floats\).*x \(int64\)"):
        bench(save(network(), tmp_path / "m.onnx"), save(other, tmp_path / "o.onnx"), runs=1)


def test_floats_of_other_widths_are_the_same_input(tmp_path: Path) -> None:
    half = save(network(dtype=TensorProto.FLOAT16), tmp_path / "half.onnx")
    single = save(network(), tmp_path / "single.onnx")
    samples = [{"x": images(2)}]
    assert bench(single, half, samples, runs=1).input_shapes == {"x": (2, 3, 8, 8)}
    assert bench(half, single, samples, runs=1).input_shapes == {"x": (2, 3, 8, 8)}
    assert bench(half, single, runs=1).input_shapes == {"x": (1, 3, 8, 8)}


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


def _open_sizes(tmp_path: Path) -> Path:
    """A model of x (batch, 3, height, 8)."""
    model = network()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    for node in model.graph.node[-2:]:  # whose constants want 8 rows
        model.graph.node.remove(node)
    model.graph.output[0].name = model.graph.node[-1].output[0]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return save(model, tmp_path / "open.onnx")


def test_sizes_beside_the_batch_are_asked_for_and_not_taken_for_1(tmp_path: Path) -> None:
    path = _open_sizes(tmp_path)
    with pytest.raises(CalibrationError, match=r"Give SAMPLES.*--shape x=2,3,N,8"):
        bench(path, path, Samples(batch_size=2), runs=1)
    found = bench(path, path, shapes={"x": (2, 3, 10, 8)}, runs=1)
    assert found.input_shapes == {"x": (2, 3, 10, 8)}


def test_shapes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    with pytest.raises(CalibrationError, match=r"no input 'X'; it has x"):
        bench(path, path, shapes={"X": (1, 3, 8, 8)}, runs=1)
    with pytest.raises(CalibrationError, match=r"got \(1, 4, 8, 8\); the model wants 'x'"):
        bench(path, path, shapes={"x": (1, 4, 8, 8)}, runs=1)
    with pytest.raises(CalibrationError, match="not both"):
        bench(path, path, [{"x": images(1)}], shapes={"x": (1, 3, 8, 8)}, runs=1)


def test_models_in_memory_are_timed_and_the_value_prints_in_a_line(tmp_path: Path) -> None:
    model = network()
    found = bench(model, load(save(model, tmp_path / "m.onnx")), runs=1)
    assert found.float_bytes > 0
    assert repr(found).startswith("Benchmark(")
    assert len(repr(found)) < 100


def test_swapped_models_are_refused() -> None:
    quantized = onnxq.quantize(network(), {"x": images(2)}, check=onnxq.Check.NONE)
    with pytest.raises(ModelError, match="look swapped"):
        bench(quantized, network())
