"""Relu and Clip behind a MatMul with a float result, asked of ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest

import onnxq
from onnxq.ort import runtime
from onnxq.ort.clipped_matmul import write_max
from onnxq.qconfig import QConfigMapping
from tests.op_types import op_types

RELU = "r = Relu (p)"
CLIP = "r = Clip (p, zero, six)"
CAP = "r = Clip (p, , six)"
INTEGERS = {"MatMulIntegerToFloat", "QGemm"}
WEIGHTS = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
SAMPLES = [
    {"x": np.random.default_rng(seed).standard_normal((4, 32)).astype(np.float32)}
    for seed in range(1, 4)
]
FLOAT_RESULTS = QConfigMapping.from_yaml(
    "op_types: {MatMul: int8_float_output, Gemm: int8_float_output}"
)


def clipped(matmul: str, clip: str, reader: str = "y = Softmax (r)") -> onnx.ModelProto:
    """The graph p = MatMul(x, w), r = clip(p), y = reader(r)."""
    text = f"""<ir_version: 9, opset_import: ["": 17]>
        graph (float[4,32] x) => (float[4,32] y)
        <float zero = {{0.0}}, float six = {{2.5}}> {{ p = {matmul} (x, w) {clip} {reader} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    return model


def made_of(source: onnx.ModelProto, written: str = "qdq") -> ir.Model:
    return onnxq.quantize(source, SAMPLES, qconfig=FLOAT_RESULTS, target="x86-vnni", format=written)


@pytest.mark.parametrize("written", ["qdq", "qoperator"])
@pytest.mark.parametrize("clip", [RELU, CLIP, CAP])
@pytest.mark.parametrize("matmul", ["MatMul", "Gemm"])
def test_the_matmul_runs_in_integers(matmul: str, clip: str, written: str) -> None:
    source = clipped(matmul, clip)
    made = made_of(source, written)
    assert INTEGERS & set(op_types(runtime.optimized_graph(made)))


@pytest.mark.filterwarnings("ignore:output")  # pairs of products saturate on some machines
@pytest.mark.parametrize("reader", ["y = Softmax (r)", "y = MatMul (r, w)"])
@pytest.mark.parametrize("outputs", [["p"], ["r"], ["p", "r"]], ids=str)
@pytest.mark.parametrize("matmul", ["MatMul", "Gemm"])
def test_the_matmul_runs_in_integers_where_the_graph_gives_its_result(
    matmul: str, outputs: list[str], reader: str
) -> None:
    source = clipped(matmul, RELU, reader)
    source.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    made = made_of(onnx.shape_inference.infer_shapes(source))
    assert not {"MatMul", "Gemm"} & set(op_types(runtime.optimized_graph(made)))


@pytest.mark.parametrize("matmul", ["MatMul", "Gemm"])
def test_onnx_runtime_leaves_it_in_float_without(
    matmul: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.static.rewrite.write_max", lambda _: None)
    made = made_of(clipped(matmul, RELU))
    assert not INTEGERS & set(op_types(runtime.optimized_graph(made)))


@pytest.mark.parametrize("clip", [RELU, CLIP, CAP])
def test_the_floats_are_the_same(clip: str) -> None:
    quantized = """<ir_version: 10, opset_import: ["": 21]>
        graph (uint8[4,32] x, int8[32,32] w) => (float[4,32] y)
        <float s = {0.05}, float zero = {0.0}, float six = {2.5}> {
            a = DequantizeLinear (x, s) b = DequantizeLinear (w, s) p = MatMul (a, b) CLIP
            y = Neg (r) }""".replace("CLIP", clip)
    before, after = (ir.from_proto(onnx.parser.parse_model(quantized)) for _ in range(2))
    write_max(after)
    assert {"Max", "Min"} & set(op_types(after))
    rng = np.random.default_rng(5)
    feeds = {
        "x": rng.integers(0, 255, (4, 32)).astype(np.uint8),
        "w": rng.integers(-127, 127, (32, 32)).astype(np.int8),
    }
    y, z = (
        next(iter(onnx.reference.ReferenceEvaluator(ir.to_proto(model)).run(None, feeds)))
        for model in (before, after)
    )
    np.testing.assert_array_equal(y, z)


def test_what_a_quantizer_reads_stays_as_it_is() -> None:
    source = clipped("MatMul", RELU, "y = MatMul (r, w)")
    made = onnxq.quantize(source, SAMPLES, target="x86-vnni")
    assert "Max" not in op_types(made)
