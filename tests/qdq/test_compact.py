from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.checking.integers import find_integers
from onnxq.errors import CalibrationError
from onnxq.graph.edit import new_initializer
from onnxq.operator.nodes import tensor_of
from onnxq.ort import runtime
from onnxq.ort.version import installed
from onnxq.qdq.compact import INTEGERS_SUFFIX, NAME_CHARACTERS, compact, names_in
from onnxq.qdq.read import ZERO_POINT, is_constant, is_dequantize, zero_point_of
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.golden_models import BODIES, CONSTANTS, conv_model, data
from tests.stored_weights import groups

LONG = "/encoder/layer.0/attention/self/query"
GEMM = "f = Flatten(x) y = Gemm(f, w288, b8)"
RANDOM = np.random.default_rng(3)
WEIGHTS = {
    **CONSTANTS,
    "w288": RANDOM.standard_normal((288, 8)).astype(np.float32),
    "b8": RANDOM.standard_normal(8).astype(np.float32),
}


def quantized(body: str, form: str = "qdq", outputs: str = "float[N,8,H,W] y") -> ir.Model:
    prepared = prepare(conv_model(body, outputs, WEIGHTS), None, "x86-vnni")
    return rewrite(prepared, plan(prepared, calibrate(prepared, data())), form)


def with_zero_points(model: ir.Model) -> ir.Model:
    """The model with a zero point at the DQ of each constant that has none."""
    full = model.clone()
    for node in list(full.graph):
        if is_dequantize(node) and is_constant(node) and zero_point_of(node) is None:
            integers, scale = node.inputs[0], node.inputs[1]
            assert integers is not None
            assert scale is not None
            zeros = np.zeros(tensor_of(scale).shape.numpy(), tensor_of(integers).numpy().dtype)
            name = f"{node.name}_zeros"
            zero_point = new_initializer(full.graph, name, ir.Tensor(zeros, name=name))
            node.resize_inputs(ZERO_POINT + 1)
            node.replace_input_with(ZERO_POINT, zero_point)
    return full


def without_weight_zero_points(model: ir.Model) -> ir.Model:
    bare = model.clone()
    for node in bare.graph:
        if is_dequantize(node) and is_constant(node):
            node.resize_inputs(ZERO_POINT)
    return bare


def ran(model: ir.Model) -> tuple[list[str], list[np.ndarray]]:
    """(operators that ONNX Runtime runs, outputs)."""
    with runtime.open_session(model) as session:
        outputs = session.run(data(2)[0])
    return [node.op_type for node in runtime.optimized_graph(model).graph], outputs


def test_onnxruntime_makes_the_same_of_a_bias_without_zero_point() -> None:
    model = quantized(GEMM, outputs="float[N,8] y")
    full = with_zero_points(model)
    assert len(full.graph.initializers) > len(model.graph.initializers), "it had a bias"
    (operators, outputs), (wanted_operators, wanted) = ran(model), ran(full)
    assert operators == wanted_operators
    assert all(np.array_equal(x, y) for x, y in zip(outputs, wanted, strict=True))


def test_onnxruntime_needs_the_zero_point_of_a_gemms_weight() -> None:
    model = quantized(GEMM, outputs="float[N,8] y")
    assert "QGemm" in ran(model)[0]
    bare = without_weight_zero_points(model)
    if installed() >= (1, 28):
        assert "Gemm" in ran(bare)[0]
    else:
        with pytest.raises(CalibrationError, match="same shape size"):
            ran(bare)


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("body", sorted(BODIES))
def test_no_constant_is_stored_twice_and_every_integer_is_still_known(body: str, form: str) -> None:
    model = quantized(BODIES[body], form)
    integers = find_integers(model)
    assert integers
    assert not [found.name for found in integers if found.qparams is None]
    told = {
        f"{found.tensor}_{part}" for found in integers for part in ("scale", "zero_point")
    }  # in QOperator format these names say what integers stand for
    contents = [
        (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes())
        for name, value in model.graph.initializers.items()
        if name not in told and (tensor := tensor_of(value))
    ]
    assert len(contents) == len(set(contents))


def test_names_that_quantization_brings_are_short_but_those_of_integers() -> None:
    body = BODIES["residual"].replace("d =", f'"{LONG}/out" =')
    source = conv_model(body.replace("(d", f'("{LONG}/out"').replace(", d)", f', "{LONG}/out")'))
    prepared = prepare(source, None, "x86-vnni")
    model = rewrite(prepared, plan(prepared, calibrate(prepared, data())))
    brought = names_in(model) - names_in(prepared.model)
    assert f"{LONG}/out{INTEGERS_SUFFIX}" in brought
    others = [name for name in brought if not name.endswith(INTEGERS_SUFFIX)]
    assert max(map(len, others)) == NAME_CHARACTERS
    assert any(name.startswith("~") and name.endswith("out_dequantized") for name in others)


def test_a_second_time_changes_nothing() -> None:
    model = quantized(BODIES["residual"])
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    compact(model, ())
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_blocks_that_onnxruntime_multiplies_are_not_shared() -> None:
    proto = groups(symmetric=True)
    twin = [onnx.TensorProto.FromString(t.SerializeToString()) for t in proto.graph.initializer]
    for tensor in twin:
        tensor.name += "_2"
    names = [f"{name}_2" for name in ("w_q", "w_scale", "w_zero")]
    dequantize = onnx.helper.make_node("DequantizeLinear", names, ["v"], axis=0, block_size=32)
    matmul = onnx.helper.make_node("MatMul", ["x", "v"], ["z"])
    proto.graph.initializer.extend(twin)
    proto.graph.node.extend([dequantize, matmul])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, None))
    model = ir.from_proto(proto)
    compact(model, ())
    optimized = runtime.optimized_graph(model).graph
    assert [node.op_type for node in optimized].count("MatMulNBits") == 2
