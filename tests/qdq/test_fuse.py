from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq import catalog
from onnxq.operator import Case, OpCategory, Operator, Precision, Rule, Site
from onnxq.operator.nodes import input_at
from onnxq.ort import runtime
from onnxq.qdq.fuse import Fused, fuse
from tests import this_machine
from tests.examples import images, network, save
from tests.graph.qdq import SHAPE, Graph, kernels, run
from tests.op_types import op_types
from tests.operators import builder
from tests.operators.test_contract import each_case, randomized, types_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.operators.builder import Types


def conv_relu(g: Graph, zero_point: int = 0) -> str:
    g.op("Relu", [g.conv(g.qdq("x"), "c")], "r")
    return g.qdq("r", 0.4, zero_point)


def relu_that_bounds(g: Graph) -> str:
    return conv_relu(g, 5)


def two_relus(g: Graph) -> str:
    g.op("Relu", [g.op("Relu", [g.conv(g.qdq("x"), "c")], "r")], "s")
    return g.qdq("s", 0.4, 0)


def conv_clip(g: Graph, low: float, high: float, scale: float, zero_point: int) -> str:
    ends = [g.constant("low", low, np.float32), g.constant("high", high, np.float32)]
    g.op("Clip", [g.conv(g.qdq("x"), "c"), *ends], "r")
    return g.qdq("r", scale, zero_point)


def relu6(g: Graph) -> str:
    return conv_clip(g, 0, 6, 6 / 255, 0)


def relu6_that_bounds(g: Graph) -> str:
    return conv_clip(g, 0, 6, 0.05, 0)


def relu_as_clip(g: Graph) -> str:
    ends = [g.constant("low", 0, np.float32)]
    g.op("Clip", [g.conv(g.qdq("x"), "c"), *ends], "r")
    return g.qdq("r", 0.05, 0)


def residual(g: Graph) -> str:
    x = g.qdq("x")
    g.conv(x, "c")
    g.op("Add", [g.qdq("c", 0.4, 100), x], "s")
    return g.qdq("s", 0.5, 90)


def two_convs_read_one(g: Graph) -> str:
    g.conv(g.qdq("x"), "c")
    g.q("c", 0.4, 100)
    g.conv(g.dq("c", "c1"), "e")
    g.conv(g.dq("c", "c2"), "f")
    g.op("Add", [g.qdq("e", 2.0, 120), g.qdq("f", 2.0, 120)], "s")
    return g.qdq("s", 3.0, 120)


def add_to_itself(g: Graph) -> str:
    x = g.qdq("x")
    g.op("Add", [x, x], "s")
    return g.qdq("s", 0.1)


def float_bias(g: Graph) -> str:
    g.op("Conv", [g.qdq("x"), g.weight((8, 8, 1, 1)), g.vector(8)], "c")
    return g.qdq("c", 0.2)


def float_bias_beyond_int32(g: Graph) -> str:
    bias = g.constant("b", [1e9] * 8, np.float32)
    g.op("Conv", [g.qdq("x"), g.weight((8, 8, 1, 1)), bias], "c")
    return g.qdq("c", 0.2)


def bias_of_scale(g: Graph, factor: float) -> str:
    """A bias whose scale is x_scale * w_scale * factor."""
    x, weight = g.qdq("x"), g.weight((8, 8, 1, 1))
    scale = g.constants["x_scale"] * g.constants["w1_scale"] * factor
    g.constant("b_scale", scale, np.float32)
    g.constant("b_quantized", np.arange(8) * 1000, np.int32)
    g.op("DequantizeLinear", ["b_quantized", "b_scale"], "b", axis=0)
    g.op("Conv", [x, weight, "b"], "c")
    return g.qdq("c", 0.2)


def bias_of_nearly_its_scale(g: Graph) -> str:
    return bias_of_scale(g, 1.009)


def bias_of_another_scale(g: Graph) -> str:
    return bias_of_scale(g, 1.02)


def float_weight(g: Graph) -> str:
    random = np.random.default_rng(0).standard_normal((8, 8, 1, 1))
    g.op("Conv", [g.qdq("x"), g.constant("w", random, np.float32)], "c")
    return g.qdq("c", 0.2)


def weight_rounded_in_the_file(g: Graph) -> str:
    """A float weight behind Q and DQ, as onnxruntime.quantization may write it."""
    random = np.random.default_rng(0).standard_normal((8, 8, 3, 3))
    x = g.qdq("x")
    weight = g.qdq(g.constant("w", random, np.float32), 0.03, 128)
    g.op("Conv", [x, weight], "c", pads=[1] * 4)
    return g.qdq("c", 0.2)


def reshape_before(g: Graph) -> str:
    shape = g.constant("shape", [0, 8, 36, 1], np.int64)
    g.op("Reshape", [g.qdq("x"), shape], "r")
    g.op("Conv", ["r", g.weight((8, 8, 1, 1))], "c")
    return g.qdq("c", 0.2)


def reshape_before_and_another_reader(g: Graph) -> str:
    x, shape = g.qdq("x"), g.constant("shape", [0, 8, 36, 1], np.int64)
    g.op("Reshape", [x, shape], "r")
    g.op("Conv", ["r", g.weight((8, 8, 1, 1))], "c")
    g.op("Conv", [x, g.weight((8, 8, 6, 6))], "d")
    g.op("Add", [g.qdq("c", 0.2), g.qdq("d", 2.0)], "s")
    return g.qdq("s", 2.0)


def movement_behind(g: Graph) -> str:
    g.op("MaxPool", [g.conv(g.qdq("x"), "c")], "p", kernel_shape=[2, 2])
    g.op("Transpose", ["p"], "t", perm=[0, 2, 3, 1])
    return g.qdq("t", 0.4, 9)


def flatten_behind(g: Graph) -> str:
    g.op("Flatten", [g.conv(g.qdq("x"), "c")], "f")
    return g.qdq("f", 0.4, 9)


def read_in_float_too(g: Graph) -> str:
    g.conv(g.qdq("x"), "c")
    g.q("c", 0.4, 9)
    g.op("Mul", [g.dq("c"), g.op("Tanh", ["c"], "t")], "m")
    return g.qdq("m", 0.3)


def quantized_twice_alike(g: Graph) -> str:
    g.conv(g.qdq("x"), "c")
    g.q("c", 0.4, 9)
    g.op("QuantizeLinear", ["c", "c_scale", "c_zero_point"], "again")
    again = g.op("DequantizeLinear", ["again", "c_scale", "c_zero_point"], "again_real")
    g.op("Add", [g.dq("c"), again], "s")
    return g.qdq("s", 0.6)


def concat_of_other_qparams(g: Graph) -> str:
    x = g.qdq("x")
    g.conv(x, "c")
    g.op("Concat", [g.qdq("c", 0.4, 9), x], "m", axis=1)
    return g.qdq("m", 0.5, 8)


def movement_between_other_qparams(g: Graph) -> str:
    g.op("Transpose", [g.qdq("x")], "t", perm=[0, 2, 3, 1])
    return g.qdq("t", 0.07, 3)


def split(g: Graph) -> str:
    g.split(g.qdq("x"), "a", "b")
    g.op("Add", [g.qdq("a"), g.qdq("b")], "s")
    return g.qdq("s", 0.1)


def pad(g: Graph) -> str:
    pads = g.constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    g.op("Pad", [g.qdq("x"), pads], "p")
    return g.qdq("p")


def never_fused(g: Graph) -> str:
    g.op("HardSwish", [g.qdq("x")], "h")
    return g.qdq("h")


def without_operator(g: Graph) -> str:
    g.op("Det", [g.qdq("x")], "d")
    return g.qdq("d")


def matmul_relu(g: Graph) -> str:
    return g.op("Relu", [g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")], "r")


def silu(g: Graph) -> str:
    c = (g.conv(g.qdq("x"), "c"), g.qdq("c", 0.4, 9))[1]
    g.op("Mul", [c, (g.op("Sigmoid", [c], "s"), g.qdq("s", 1 / 256, 0))[1]], "m")
    return g.qdq("m", 0.4, 3)


PATTERNS: dict[Callable[[Graph], str], tuple[list[str], dict[str, str]]] = {
    conv_relu: (["QLinearConv"], {}),
    relu_that_bounds: (["Conv", "Relu"], {"conv_c": "bounds more"}),
    two_relus: (["Conv", "Relu", "Relu"], {}),
    relu6: (["QLinearConv"], {}),
    relu6_that_bounds: (["Conv", "Clip"], {"conv_c": "bounds more"}),
    relu_as_clip: (["Conv", "Clip"], {"conv_c": "bounds more"}),
    residual: (["QLinearConv", "QLinearAdd"], {}),
    two_convs_read_one: (["QLinearConv", "QLinearConv", "QLinearConv", "QLinearAdd"], {}),
    add_to_itself: (["QLinearAdd"], {}),
    float_bias: (["QLinearConv"], {}),
    float_bias_beyond_int32: (["Conv"], {"conv_c": "does not fit into int32"}),
    bias_of_nearly_its_scale: (["QLinearConv"], {}),
    bias_of_another_scale: (["Conv"], {"conv_c": "the scale of its bias"}),
    float_weight: (["Conv"], {"conv_c": "weight"}),
    weight_rounded_in_the_file: (["QLinearConv"], {}),
    reshape_before: (["Reshape", "QLinearConv"], {}),
    reshape_before_and_another_reader: (
        ["Reshape", "QLinearConv", "QLinearConv", "QLinearAdd"],
        {},
    ),
    movement_behind: (["QLinearConv", "MaxPool", "Transpose"], {}),
    flatten_behind: (["Conv", "Flatten"], {}),
    read_in_float_too: (["Conv", "Tanh", "Mul"], {}),
    quantized_twice_alike: (["QLinearConv", "QLinearAdd"], {}),
    concat_of_other_qparams: (["QLinearConv", "QLinearConcat"], {}),
    movement_between_other_qparams: (["Transpose"], {"transpose_t": "different qparams"}),
    split: (["Split", "QLinearAdd"], {}),
    pad: (["Pad"], {}),
    never_fused: (["HardSwish"], {"hardswish_h": "float32"}),
    without_operator: (["Det"], {"det_d": "no integer form of Det"}),
    matmul_relu: (["MatMulIntegerToFloat", "Relu"], {}),
    silu: (["QLinearConv", "QLinearSigmoid", "QLinearMul"], {}),
}
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


def computing(model: ir.Model) -> list[str]:
    return [op for op in op_types(model) if op not in CONVERSIONS]


def assert_same_integers(
    model: ir.Model, fused: Fused, shape: Sequence[int] = SHAPE, runs: int = 4
) -> None:
    for seed in range(runs):
        wanted, got = run(model, shape, seed), run(fused.model, shape, seed)
        assert all(np.array_equal(a, b) for a, b in zip(wanted, got, strict=True))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.__name__)
def test_fused_graph_has_the_integers_and_the_kernels_of_onnx_runtime(
    pattern: Callable[[Graph], str],
) -> None:
    g = Graph()
    model = g.model(pattern(g))
    fused = fuse(model)
    ops, kept = PATTERNS[pattern]
    assert computing(fused.model) == ops
    assert fused.kept.keys() == kept.keys()
    assert all(words in fused.kept[name] for name, words in kept.items())
    assert_same_integers(model, fused)
    if pattern is not pad:  # ONNX Runtime has a kernel for integers and does not use it
        assert kernels(fused.model) == kernels(model)


# ONNX Runtime 1.31 moves Q and DQ of int8, makes them uint8, and does not load its own result
REFUSED_IN_INT8 = (reshape_before, reshape_before_and_another_reader)


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p not in REFUSED_IN_INT8])
def test_int8_activations_give_the_integers_of_onnx_runtime(
    pattern: Callable[[Graph], str],
) -> None:
    g = Graph(np.int8)
    model = g.model(pattern(g))
    fused = fuse(model)
    assert_same_integers(model, fused)
    if pattern is not pad:
        assert kernels(fused.model) == kernels(model)


def test_a_weight_that_is_rounded_in_the_file_stays_int8_beside_int8_activations() -> None:
    g = Graph(np.int8)
    fused = fuse(g.model(weight_rounded_in_the_file(g)))
    (conv,) = [n for n in fused.model.graph if n.op_type == "QLinearConv"]
    types = [input_at(conv, slot).dtype for slot in (0, 3)]
    assert types == [ir.DataType.UINT8, ir.DataType.INT8]


@pytest.mark.parametrize("op_type", ["Add", "Mul"])
def test_int8_sums_and_products_are_rounded_like_uint8_ones(op_type: str) -> None:
    g = Graph(np.int8)
    g.op("Neg", ["x"], "n")
    g.op(op_type, [g.qdq("x"), g.qdq("n", 0.07)], "s")
    model = g.model(g.qdq("s", 0.06))
    assert_same_integers(model, fuse(model), runs=20)


# --- MatMul with a bias

GEMM = ["QGemm"]
GEMMS = ["Reshape", "QGemm", "Reshape"]
LOOSE = ["MatMulIntegerToFloat", "Add"]
FLOAT = ["MatMul", "Add"]


@pytest.mark.parametrize(
    ("shape", "bias", "quantized", "wanted"),
    [
        ((4, 6), (5,), True, GEMM),
        (("N", 6), (5,), True, GEMM),
        ((2, 4, 6), (5,), True, GEMMS),
        ((6,), (5,), True, GEMMS),
        ((2, 2, 3, 6), (5,), True, GEMMS),
        (("N", 4, 6), (5,), True, LOOSE),
        ((4, 6), (5,), False, FLOAT),
        (("N", 6), (5,), False, FLOAT),
        ((2, 4, 6), (5,), False, FLOAT),
        (("N", 4, 6), (5,), False, LOOSE),
        ((4, 6), (1, 5), True, FLOAT),
        ((2, 4, 6), (1, 5), True, LOOSE),
        ((4, 6), (4, 5), True, FLOAT),
        ((4, 6), (4, 1), True, FLOAT),
        ((4, 6), (1,), True, LOOSE),
    ],
)
@pytest.mark.parametrize("swapped", [False, True], ids=["product first", "bias first"])
def test_matmul_with_a_bias_becomes_what_onnx_runtime_makes_of_it(
    shape: tuple[int | str, ...],
    bias: tuple[int, ...],
    quantized: bool,
    wanted: list[str],
    swapped: bool,
) -> None:
    g = Graph()
    g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")
    random = np.random.default_rng(3).standard_normal(bias)
    operands = ["m", g.constant("b", random, np.float32)]
    g.op("Add", operands[::-1] if swapped else operands, "s")
    model = g.model(g.qdq("s", 0.05, 77) if quantized else "s", shape=shape)
    fused = fuse(model)
    assert computing(fused.model) == wanted
    assert_same_integers(model, fused, [2 if isinstance(n, str) else n for n in shape])
    assert kernels(fused.model) == kernels(model)


def test_batches_of_gemm_are_not_fused_with_a_relu() -> None:
    g = Graph()
    g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")
    g.op("Relu", [g.op("Add", ["m", g.vector(5)], "s")], "r")
    model = g.model(g.qdq("r", 0.05, 0))
    fused = fuse(model)
    assert computing(fused.model) == ["MatMul", "Add", "Relu"]
    assert "Reshape" in fused.kept["matmul_m"]
    assert_same_integers(model, fused)
    assert kernels(fused.model) == kernels(model)


@pytest.mark.parametrize("outputs", ["y", "ry", "cy", "cry"])
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("clamp", ["Relu", "Clip"])
@pytest.mark.parametrize("op_type", ["Conv", "Gemm", "MatMul"])
def test_results_of_the_graph_ahead_of_a_clamp_fuse_as_in_onnx_runtime(
    op_type: str, clamp: str, quantized: bool, outputs: str
) -> None:
    g = Graph()
    q, shape = g.qdq("x"), SHAPE if op_type == "Conv" else (4, 6)
    c = g.conv(q, "c") if op_type == "Conv" else g.op(op_type, [q, g.weight((6, 5), 1)], "c")
    ends = [g.constant("low", 0, np.float32), g.constant("high", 6, np.float32)]
    g.op(clamp, [c, *(ends if clamp == "Clip" else [])], "r")
    y = g.qdq("r", 6 / 255, 0) if quantized else g.op("Exp", ["r"], "y")
    model = g.model(*(y if name == "y" else name for name in outputs), shape=shape)
    fused = fuse(model)
    assert kernels(fused.model) == kernels(model)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 2
    got = this_machine.evaluator(model).run(None, {"x": x})
    # Exp makes errors of its argument, 50 with 1e-6 of it, relative errors of its result
    for ours, theirs in zip(got, run(model, shape), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
def test_gemm_needs_zero_points(with_bias: bool, quantized: bool) -> None:
    g = Graph()
    operands = [g.qdq("x"), g.weight((6, 5), 1, zero_point=False)]
    g.op("Gemm", operands + ([g.vector(5)] if with_bias else []), "y")
    model = g.model(g.qdq("y") if quantized else "y", shape=(4, 6))
    fused = fuse(model)
    assert not fused.integer
    assert not quantized or "zero point" in fused.kept["gemm_y"]
    assert_same_integers(model, fused, (4, 6))
    assert kernels(fused.model) == kernels(model)


@pytest.mark.parametrize("factor", [0.5, 2])
def test_gemm_takes_a_bias_of_any_scale_as_onnx_runtime_does(factor: float) -> None:
    g = Graph()
    w = g.weight((6, 5), 1)
    scale = g.constants[w.replace("_dequantized", "_scale")] * np.float32(0.05 * factor)
    parameters = [
        g.constant("b_quantized", np.arange(-200, 300, 100), np.int32),
        g.constant("b_scale", scale, np.float32),
        g.constant("b_zero_point", np.zeros(5), np.int32),
    ]
    b = g.op("DequantizeLinear", parameters, "b", axis=0)
    g.op("Gemm", [g.qdq("x"), w, b], "y")
    model = g.model(g.qdq("y"), shape=(4, 6))
    fused = fuse(model)
    assert computing(fused.model) == ["QGemm"]
    assert_same_integers(model, fused, (4, 6))
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32) * 2
    (y,) = this_machine.evaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(y, run(model, (4, 6))[0])


@pytest.mark.parametrize("tail", ["integers", "relu", "floats"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 1), (1, 5), (4, 1), (4, 5)], ids=str)
@pytest.mark.parametrize("batches", [(), (2,)], ids=["matrix", "batches"])
def test_an_int32_bias_that_is_added_behind_matmul_is_taken_as_onnx_runtime_does(
    batches: tuple[int, ...], shape: tuple[int, ...], tail: str
) -> None:
    g, scale = Graph(), np.float32(0.0007)  # which ONNX Runtime does not look at
    g.constant("b_quantized", np.random.default_rng(5).integers(-3000, 3000, shape), np.int32)
    b = g.op("DequantizeLinear", ["b_quantized", g.constant("s", scale, np.float32)], "b")
    y = g.op("Add", [g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m"), b], "y")
    y = g.op("Relu", [y], "r") if tail == "relu" else y
    sizes = (*batches, 4, 6)
    model = g.model(y if tail == "floats" else g.qdq(y, 0.05, 0), shape=sizes)
    fused = fuse(model)
    assert_same_integers(model, fused, sizes)
    assert kernels(fused.model) == kernels(model)
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32) * 2
    (got,) = this_machine.evaluator(model).run(None, {"x": x})
    # sums of floats in another order, where ONNX Runtime computes in float32
    np.testing.assert_allclose(got, run(model, sizes)[0], rtol=1e-5, atol=1e-5)


def test_what_another_node_carries_out_is_named_without_op_types() -> None:
    g = Graph()
    g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")
    g.op("Relu", [g.op("Add", ["m", g.vector(5)], "s")], "r")
    fused = fuse(g.model(g.qdq("r", 0.05, 0), shape=(4, 6)))
    assert fused.integer == {"matmul_m": ("QGemm",), "add_s": (), "relu_r": ()}


@pytest.mark.parametrize("opset", [11, 12, 13, 19, 25])
@pytest.mark.parametrize("pattern", [conv_relu, residual, movement_behind, relu6_that_bounds])
def test_opsets(pattern: Callable[[Graph], str], opset: int) -> None:
    g = Graph()
    output = pattern(g)
    if opset < 13:  # scales per channel came with 13
        for name in [n for n in g.constants if n.startswith("w") and "quantized" not in n]:
            g.constants[name] = g.constants[name][0]
        for node in g.nodes:
            if node.op_type == "DequantizeLinear":
                node.ClearField("attribute")
    model = g.model(output, opset=opset)
    if opset < 12 and pattern is movement_behind and this_machine.may_saturate(fuse(model).model):
        pytest.skip("MaxPool takes integers from opset 12 on: the convolution computes in float")
    fused = fuse(model)
    assert fused.integer or pattern is relu6_that_bounds
    assert_same_integers(model, fused)


@pytest.mark.parametrize("opset", [11, 12, 13, 21])
@pytest.mark.parametrize("attributes", [{}, {"axis": 2}, {"axis": -1}])
@pytest.mark.parametrize("shape", [SHAPE, ("N", "C", "H", "W")])
def test_softmax_is_fused_over_the_axes_of_its_opset(
    opset: int, attributes: dict[str, int], shape: tuple[int | str, ...]
) -> None:
    g = Graph()
    g.op("Softmax", [g.qdq("x")], "s", **attributes)
    model = g.model(g.qdq("s", 1 / 256, 0), opset=opset, shape=shape)
    fused = fuse(model)
    assert computing(fused.model) == ["QLinearSoftmax"]
    assert_same_integers(model, fused)
    session = this_machine.evaluator(model)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32) * 2
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], run(model, SHAPE)[0])


def test_a_pool_that_onnx_runtime_counts_otherwise_is_fused_as_it_does() -> None:
    g = Graph()
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1}
    g.op("AveragePool", [g.qdq("x")], "p", **window)
    model = g.model(g.qdq("p", 0.02))
    fused = fuse(model)
    assert computing(fused.model) == ["QLinearAveragePool"]
    assert_same_integers(model, fused)


def matmul_bias(g: Graph) -> str:
    g.op("MatMul", [g.qdq("x"), g.weight((6, 5), 1)], "m")
    g.op("Add", ["m", g.vector(5)], "s")
    return g.qdq("s")


@pytest.mark.parametrize("pattern", [*(p for p in PATTERNS if p is not pad), matmul_bias])
def test_quantizers_of_com_microsoft(pattern: Callable[[Graph], str]) -> None:
    g = Graph()
    output = pattern(g)
    for node in g.nodes:
        if node.op_type in CONVERSIONS:
            node.domain = "com.microsoft"
    model = g.model(output)
    fused = fuse(model)
    assert_same_integers(model, fused)
    assert kernels(fused.model) == kernels(model)


@pytest.mark.parametrize("pattern", [conv_relu, relu6, relu_that_bounds, float_bias, matmul_bias])
def test_scales_of_one_element(pattern: Callable[[Graph], str]) -> None:
    g = Graph()
    output = pattern(g)
    for name, array in g.constants.items():
        if name.endswith(("_scale", "_zero_point")) and not array.ndim:
            g.constants[name] = array.reshape(1)
    model = g.model(output)
    fused = fuse(model)
    assert_same_integers(model, fused)
    assert kernels(fused.model) == kernels(model)


# --- models of another tool


@pytest.mark.parametrize("activations", ["QUInt8", "QInt8", "QUInt16"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_models_of_onnx_runtimes_own_quantizer(
    activations: str, per_channel: bool, tmp_path: Path
) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # it has no types
        def __init__(self) -> None:
            self.batches = iter([{"x": images(4, seed)} for seed in range(4)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    source, target = save(network(opset=21), tmp_path / "f.onnx"), tmp_path / "q.onnx"
    quantize_static(
        source,
        target,
        Reader(),
        activation_type=QuantType[activations],
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
    )
    model = ir.load(target)
    fused = fuse(model)
    batch = {"x": images(16, 9)}
    with runtime.open_session(model) as wanted, runtime.open_session(fused.model) as got:
        assert np.array_equal(wanted.run(batch)[0], got.run(batch)[0])
    assert kernels(fused.model) == kernels(model)
    assert bool(fused.integer) == (activations != "QUInt16")


# --- every operator


@each_case(lambda op, case: op.has_lowering() and case.opset >= 13)
def test_every_operator_gives_the_integers_of_its_qdq_form(operator: Operator, case: Case) -> None:
    rule = builder.rule_of(operator, case)
    for types in types_for(operator, case)[:: 1 if rule.category is OpCategory.COMPUTE else 2]:
        for output in (True,) if rule.needs_output else (True, False):
            assert_operator_fuses(operator, case, types, output=output)


def assert_operator_fuses(operator: Operator, case: Case, types: Types, *, output: bool) -> None:
    plan = builder.plan_of(operator, case, types, output=output)
    integers = randomized(builder.integers_of(case, plan), plan, 3)
    qdq = builder.qdq_model(operator, case, plan, integers)
    fused = fuse(ir.from_proto(qdq))
    got = builder.run(fused.model, case, integers)
    assert all(
        np.array_equal(a, b) for a, b in zip(builder.run(qdq, case, integers), got, strict=True)
    )
    assert not fused.tables


class Negated(Operator):
    """A float operator whose integer form is written as a table, here: of 255 - x."""

    op_type = "HardSwish"

    def rule(self, node: ir.Node) -> Rule:  # noqa: ARG002  # it takes any node
        return Rule(OpCategory.ELEMENTWISE, precision=Precision.FLOAT_BETWEEN_QDQ)

    def cases(self) -> list[Case]:
        return []

    def lower(self, site: Site) -> list[ir.Value]:
        table = site.constant("table", np.arange(256)[::-1].astype(np.uint8))
        index = site.tape.op("Cast", [site.inputs[0]], {"to": ir.DataType.INT32})
        return [site.tape.op("Gather", [table, index])]


def test_a_table_in_place_of_a_float_operator_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph()
    model = g.model(never_fused(g))
    monkeypatch.setattr(catalog, "find", lambda *_: Negated())
    fused = fuse(model)
    assert fused.tables == ("hardswish_h",)
    assert fused.integer == {"hardswish_h": ("Cast", "Gather")}
    assert not fused.kept
    run(fused.model, SHAPE)


# --- the graph around


def test_the_model_is_untouched_and_weights_are_shared() -> None:
    g = Graph()
    model = g.model(silu(g))
    before = op_types(model)
    fused = fuse(model)
    assert op_types(model) == before
    name = next(n for n in g.constants if n.startswith("w") and n.endswith("_quantized"))
    assert (
        fused.model.graph.initializers[name].const_value
        is model.graph.initializers[name].const_value
    )


def test_scales_keep_their_names_and_nothing_unread_is_left() -> None:
    g = Graph()
    fused = fuse(g.model(residual(g)))
    assert set(fused.model.graph.initializers) <= set(g.constants)
    assert all(v.uses() for v in fused.model.graph.initializers.values())
    assert {"c_quantized", "s_quantized"} <= {v.name for n in fused.model.graph for v in n.outputs}


def test_fusing_twice_changes_nothing() -> None:
    g = Graph()
    once = fuse(g.model(silu(g))).model
    again = fuse(once)
    assert op_types(again.model) == op_types(once)
    assert not again.integer


def test_branches_are_fused() -> None:
    inner = Graph()
    inner_model = inner.model(residual(inner))
    body = inner_model.graph
    x = body.inputs[0]
    outer_x = ir.val("x", ir.DataType.FLOAT, SHAPE)
    flag = ir.val("flag", ir.DataType.BOOL, ())
    branches = []
    for number in (0, 1):
        copy = inner_model.clone().graph
        copy.inputs[0].replace_all_uses_with(outer_x)
        copy.inputs.clear()
        for node in copy:
            node.name = f"{node.name}_{number}"
            for value in node.outputs:
                value.name = f"{value.name}_{number}"
        branches.append(copy)
    del x
    attributes = [
        ir.AttrGraph(name, graph)
        for name, graph in zip(("then_branch", "else_branch"), branches, strict=True)
    ]
    choice = ir.Node("", "If", [flag], attributes, name="if")
    choice.outputs[0].name = "y"
    choice.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([outer_x, flag], choice.outputs, nodes=[choice], opset_imports={"": 21})
    fused = fuse(ir.Model(graph, ir_version=10))
    for branch in ("then_branch", "else_branch"):
        inside = [n.op_type for n in fused.model.graph[0].attributes[branch].as_graph()]
        assert [op for op in inside if op not in CONVERSIONS] == ["QLinearConv", "QLinearAdd"]
    assert len(fused.integer) == 4


def test_a_dequantizer_outside_of_a_body_does_not_fuse_into_it() -> None:
    g = Graph()
    x = g.qdq("x")
    model = g.model(x)
    real = model.graph.outputs[0]
    product = ir.node("Add", [real, real], name="add")
    product.outputs[0].name = "inner"
    code = ir.node(
        "QuantizeLinear",
        [product.outputs[0], *model.graph.node(0).inputs[1:]],
        name="inner_q",
    )
    code.outputs[0].name = "inner_quantized"
    body = ir.Graph([], code.outputs, nodes=[product, code], name="body")
    flag = ir.val("flag", ir.DataType.BOOL, ())
    choice = ir.Node(
        "",
        "If",
        [flag],
        [ir.AttrGraph("then_branch", body), ir.AttrGraph("else_branch", _other(real))],
        name="if",
    )
    choice.outputs[0].name = "y"
    model.graph.append(choice)
    model.graph.inputs.append(flag)
    model.graph.outputs[0] = choice.outputs[0]
    assert not fuse(model).integer


def _other(real: ir.Value) -> ir.Graph:
    node = ir.node("Cast", [real], {"to": 2}, name="cast")
    node.outputs[0].name = "cast_out"
    return ir.Graph([], node.outputs, nodes=[node], name="other")


def test_scales_in_vectors_of_one_become_one_initializer_of_rank_0() -> None:
    g = Graph()
    parameters = [g.constant("s", [0.05], np.float32), g.constant("z", [131], np.uint8)]
    x = g.op("QuantizeLinear", ["x", *parameters], "q")
    for i in range(3):
        g.conv(g.op("DequantizeLinear", [x, *parameters], f"d{i}"), f"c{i}")
        x = g.op("QuantizeLinear", [f"c{i}", *parameters], f"q{i}")
    model = g.model(g.op("DequantizeLinear", [x, *parameters], "y"))
    fused = fuse(model).model
    assert len(fused.graph.initializers) == len(model.graph.initializers) + len(parameters)


@pytest.mark.nightly
def test_time_is_linear_in_the_number_of_nodes() -> None:
    import time

    def seconds(count: int) -> float:
        g = Graph()
        x = g.qdq("x")
        weight = g.weight((8, 8, 1, 1))
        for i in range(count):
            g.op("Conv", [x, weight], f"c{i}")
            x = g.qdq(f"c{i}")
        model = g.model(x)
        start = time.process_time()
        assert len(fuse(model).integer) == count
        return time.process_time() - start

    seconds(10)
    small, large = (min(seconds(n) for _ in range(2)) for n in (250, 1000))
    assert large < 4 * 2.5 * small  # 4 times the nodes; 2.5 for a busy machine


@pytest.mark.parametrize(
    ("of_input", "of_result", "wanted"),
    [
        ("t", "s", "input 0: its scale or zero point is computed at run time"),
        ("many", "s", "input 0 has one scale per channel; one for the tensor is wanted"),
        ("s", "t", "its result is quantized: its scale or zero point is computed at run time"),
    ],
)
def test_a_node_that_stays_has_the_reason_of_its_qparams(
    of_input: str, of_result: str, wanted: str
) -> None:
    model = ir.from_onnx_text(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3] x, float t) => (float[2,3] y) <float s = {{0.5}}, float[3] many = {{1, 2, 3}}>
        {{ a = QuantizeLinear(x, {of_input})  b = DequantizeLinear(a, {of_input})
          [node] c = Sigmoid(b)
          d = QuantizeLinear(c, {of_result})  y = DequantizeLinear(d, {of_result}) }}"""
    )
    assert fuse(model).kept == {"node": wanted}
