"""Float models that hold weights, or take an input, as integers that DequantizeLinear reads."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.errors import ModelError
from tests.examples import model
from tests.operators.builder import session

make = helper.make_node
SCALE = np.array(0.02, np.float32)
ZERO = np.array(128, np.uint8)


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@functools.cache
def stored(opset: int, *, whole_input: bool = False) -> onnx.ModelProto:
    """Conv, Relu, a mean, MatMul; weights per channel and per tensor, an int32 bias."""
    constants: dict[str, np.ndarray] = {
        "w": integers(1, 8, 3, 3, 3).view(np.int8) // 2,
        "ws": np.linspace(0.001, 0.003, 8, dtype=np.float32),
        "b": np.arange(-4, 4, dtype=np.int32) * 50,
        "v": integers(2, 8, 10).view(np.int8) // 2,
        "s": SCALE,
        "z": ZERO,
        "bs": np.array(1e-3, np.float32),
    }
    nodes = [
        *([make("DequantizeLinear", ["x", "s", "z"], ["f"], "image")] if whole_input else []),
        make("DequantizeLinear", ["w", "ws"], ["wf"], "weight", axis=0),
        make("DequantizeLinear", ["b", "bs"], ["bf"], "bias"),
        make("Conv", ["f" if whole_input else "x", "wf", "bf"], ["c"], "conv", pads=[1] * 4),
        make("Relu", ["c"], ["r"], "relu"),
        make("GlobalAveragePool", ["r"], ["g"], "mean"),
        make("Flatten", ["g"], ["t"], "flatten"),
        make("DequantizeLinear", ["v", "s"], ["vf"], "matrix"),
        make("MatMul", ["t", "vf"], ["y"], "matmul"),
    ]
    made = model(nodes, constants, {"x": ["N", 3, 8, 8]}, opset=opset)
    if whole_input:
        made.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    return made


def samples(source: onnx.ModelProto) -> dict[str, np.ndarray]:
    x = integers(3, 16, 3, 8, 8)
    is_integers = source.graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8
    return {"x": x if is_integers else (x - np.float32(128)) * SCALE}


@pytest.mark.parametrize("whole_input", [False, True], ids=["float input", "uint8 input"])
@pytest.mark.parametrize("way", ["qdq", "qoperator", "dynamic"])
def test_it_is_quantized_around_them(way: str, whole_input: bool) -> None:
    source = stored(17, whole_input=whole_input)
    feeds = samples(source)
    if way == "dynamic":
        made = onnxq.quantize_dynamic(source, objective="size")
    else:
        made = onnxq.quantize(source, feeds, format=way)
    types = [node.op_type for node in made.graph]
    # in the static forms the integers of the input are those that the first node reads
    reads_input = whole_input and way == "dynamic"
    assert types.count("DequantizeLinear") == reads_input or way == "qdq"
    (wanted,), (got,) = (session(m).run(None, feeds) for m in (source, made))
    assert np.square(got - wanted).sum() < np.square(wanted).sum() / 1000  # 30 dB
    onnxq.cross_check(made, feeds).check()
    assert onnxq.verify(source, made, feeds).outputs[0].sqnr_db > 30


@pytest.mark.parametrize("opset", [13, 21])
def test_weights_are_the_floats_that_onnx_runtime_makes_of_them(opset: int) -> None:
    source = stored(opset)
    canonical = onnxq.prepare(source).model
    seen = onnx.ModelProto.FromString(source.SerializeToString())
    del seen.graph.output[:]
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("wf", "bf", "vf"))
    for name, wanted in zip(
        ("wf", "bf", "vf"), session(seen).run(None, samples(source)), strict=True
    ):
        tensor = canonical.graph.initializers[name].const_value
        assert tensor is not None
        assert np.array_equal(tensor.numpy(), wanted)


def test_a_model_that_makes_integers_is_quantized_already() -> None:
    source = ir.from_proto(stored(17))
    made = onnxq.quantize(source, samples(stored(17)))
    with pytest.raises(ModelError, match="quantized already"):
        onnxq.prepare(made.to_proto())
