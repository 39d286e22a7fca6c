"""The reference quantizes the float weights that ONNX Runtime quantizes when it loads a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.qdq.fuse import fuse, fuse_as_loaded
from tests import this_machine
from tests.graph.qdq import SHAPE, Graph, kernels, run
from tests.op_types import op_types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx_ir as ir


NOISE = 0.01  # of the integers behind a float sum, which has no order; without rounded weights 10 %


def assert_same(model: ir.Model, shape: Sequence[int] = SHAPE) -> None:
    """The fused file gives ONNX Runtime's integers exactly, the evaluator but for float sums."""
    fused = fuse_as_loaded(model).model
    exact = any(op.startswith("Q") and op != "QuantizeLinear" for op in op_types(fused))
    evaluator = this_machine.evaluator(model)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 2
        (wanted,), (got,) = run(model, shape, seed), evaluator.run(None, {"x": x})
        np.testing.assert_array_equal(run(fused, shape, seed)[0], wanted)
        assert np.mean(got != wanted) <= (0 if exact else NOISE)


def weight(g: Graph, shape: Sequence[int], offset: float = 0.3) -> str:
    random = np.random.default_rng(7).standard_normal(shape) + offset
    return g.constant("w", random, np.float32)


def conv(g: Graph) -> str:
    return g.op("Conv", [g.qdq("x"), weight(g, (8, 8, 3, 3)), g.vector(8)], "c")


def conv_without_bias(g: Graph) -> str:
    return g.op("Conv", [g.qdq("x"), weight(g, (8, 8, 3, 3), 5)], "c")


def conv_relu(g: Graph) -> str:
    return g.op("Relu", [conv(g)], "r")


def transposed(g: Graph) -> str:
    return g.op("ConvTranspose", [g.qdq("x"), weight(g, (8, 4, 3, 3)), g.vector(4)], "c")


def transposed_without_bias(g: Graph) -> str:
    return g.op("ConvTranspose", [g.qdq("x"), weight(g, (8, 4, 3, 3), -5)], "c")


def transposed_relu(g: Graph) -> str:
    return g.op("Relu", [transposed(g)], "r")


def transposed_of_zeros(g: Graph) -> str:
    zeros = g.constant("w", np.zeros((8, 4, 3, 3)), np.float32)
    return g.op("ConvTranspose", [g.qdq("x"), zeros, g.vector(4)], "c")


def behind_a_pool(g: Graph) -> str:
    pooled = g.op("MaxPool", [g.qdq("x")], "p", kernel_shape=[2, 2])
    return g.op("ConvTranspose", [pooled, weight(g, (8, 4, 3, 3)), g.vector(4)], "c")


def bias_beside_integers(g: Graph) -> str:
    w = g.weight((8, 8, 3, 3))
    return g.op("Relu", [g.op("Conv", [g.qdq("x"), w, g.vector(8)], "c")], "r")


def bias_of_transposed(g: Graph) -> str:
    return g.op("ConvTranspose", [g.qdq("x"), g.weight((8, 8, 3, 3)), g.vector(8)], "c")


def bias_of_transposed_per_output(g: Graph) -> str:
    w = g.weight((8, 8, 3, 3), axis=1)
    return g.op("ConvTranspose", [g.qdq("x"), w, g.vector(8)], "c")


PATTERNS = (
    conv,
    conv_without_bias,
    conv_relu,
    transposed,
    transposed_without_bias,
    transposed_relu,
    transposed_of_zeros,
    behind_a_pool,
    bias_beside_integers,
    bias_of_transposed,
    bias_of_transposed_per_output,
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.__name__)
def test_reference_gives_the_integers_of_onnx_runtime(pattern: Callable[[Graph], str]) -> None:
    g = Graph()
    model = g.model(g.qdq(pattern(g), 0.11))
    assert_same(model)
    assert kernels(fuse_as_loaded(model).model) == kernels(model)


@pytest.mark.parametrize("shape", [(5,), (1, 5)])  # a bias that is no vector: all stays float
def test_gemm(shape: Sequence[int]) -> None:
    g = Graph()
    bias = g.constant("b", np.random.default_rng(2).standard_normal(shape), np.float32)
    g.op("Gemm", [g.qdq("x"), weight(g, (16, 5)), bias], "c")
    model = g.model(g.qdq("c", 0.11), shape=(3, 16))
    assert_same(model, (3, 16))
    assert ("QGemm" in op_types(fuse_as_loaded(model).model)) == (len(shape) == 1)


@pytest.mark.parametrize("shape", [(4, 6), (2, 4, 6)], ids=["matrix", "batches"])
@pytest.mark.parametrize("relu", [False, True])
def test_the_weights_of_a_matmul_with_an_added_vector(shape: Sequence[int], relu: bool) -> None:
    g = Graph()
    g.op("MatMul", [g.qdq("x"), weight(g, (6, 5))], "m")
    g.op("Add", [g.vector(5), "m"], "s")
    model = g.model(g.qdq(g.op("Relu", ["s"], "r") if relu else "s", 0.11, 0), shape=shape)
    fused = op_types(fuse_as_loaded(model).model)
    assert ("QGemm" in fused) == (not relu or len(shape) == 2)
    if "QGemm" in fused:
        assert_same(model, shape)


SCALES = [1e-12, 2e-9, 1e-40, 1e-45]  # of a column of weights: its bias leaves int32, or is x / 0
LAYERS = ("MatMul of a matrix", "MatMul of batches", "Gemm", "Conv")


@this_machine.adds_exactly
@pytest.mark.parametrize("bias", [0.5, -3.0, 0.0, 1e30, np.nan])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_bias_that_leaves_int32_wraps_as_in_onnx_runtime(
    layer: str, scale: float, bias: float
) -> None:
    g, op_type = Graph(), layer.split()[0]
    shape = {"Conv": (2, 6, 3), "MatMul of batches": (2, 4, 6)}.get(layer, (4, 6))
    w = g.weight((5, 6, 1), 0) if op_type == "Conv" else g.weight((6, 5), 1)
    g.constants[w.replace("_dequantized", "_scale")][[0, 2]] = scale
    values = np.array([bias, 0.3, -bias, 0.1, -0.2])
    b = g.constant("b", values, np.float32)
    x = g.qdq("x")
    if op_type == "MatMul":
        y = g.op("Add", [g.op("MatMul", [x, w], "m"), b], "y")
    else:
        y = g.op(op_type, [x, w, b], "y")
    model = g.model(g.qdq(y, 0.11), shape=shape)
    assert_same(model, shape)
    assert kernels(fuse_as_loaded(model).model) == kernels(model)


def test_float_weights_stay_where_nothing_quantizes_the_result() -> None:
    g = Graph()
    model = g.model(g.op("Tanh", [conv(g)], "t"))
    assert op_types(fuse_as_loaded(model).model) == op_types(model)


def test_the_model_is_untouched_and_a_fused_file_leaves_weights_float() -> None:
    g = Graph()
    model = g.model(g.qdq(conv(g), 0.11))
    before = op_types(model)
    assert "w" not in fuse_as_loaded(model).model.graph.initializers
    assert op_types(model) == before
    assert "w" in model.graph.initializers
    assert "Conv" in op_types(fuse(model).model)
