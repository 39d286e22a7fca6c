"""Biases of convolutions are floats in the file, and the same int32 integers when it runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.saving import saved_bytes
from onnxq.qdq.fuse.float_biases import store_float_biases
from onnxq.qdq.read import BIAS, dequantizer
from tests.graph.qdq import SHAPE, Graph, kernels, run

X_SCALE = 0.05
B = np.random.default_rng(5).integers(-20_000, 20_000, 8)


def convolution(bias: np.ndarray = B, behind: str = "", off: float = 1.0) -> Graph:
    """Conv(DQ x, DQ w, DQ bias) and what is named, its result `r`."""
    g = Graph()
    w = g.weight((8, 8, 3, 3))
    x = g.qdq("x", X_SCALE)
    scale = np.float32(X_SCALE) * g.constants["w0_scale"] * np.float32(off)
    g.constant("b_quantized", bias, np.int32)
    g.constant("b_scale", scale, np.float32)
    b = g.op("DequantizeLinear", ["b_quantized", "b_scale"], "b_dequantized", axis=0)
    result = g.op("Conv", [x, w, b], "c")
    if behind:
        result = g.op(behind, [result], "r")
    g.last = result  # type: ignore[attr-defined]  # of this test alone
    return g


def to_integers(g: Graph) -> ir.Model:
    return g.model(g.q(g.last))  # type: ignore[attr-defined]  # set above


def bias_of(model: ir.Model) -> ir.Value:
    (value,) = (node.inputs[BIAS] for node in model.graph if node.op_type == "Conv")
    assert value is not None
    return value


@pytest.mark.parametrize("behind", ["", "Relu"])
def test_onnxruntime_makes_the_same_integers_of_a_float_bias(behind: str) -> None:
    plain, model = (to_integers(convolution(behind=behind)) for _ in range(2))
    store_float_biases(model)
    assert bias_of(model).dtype == ir.DataType.FLOAT
    assert bias_of(model).is_initializer()
    assert kernels(model) == kernels(plain)
    for seed in range(3):
        np.testing.assert_array_equal(run(model, SHAPE, seed)[0], run(plain, SHAPE, seed)[0])
    assert saved_bytes(plain) - saved_bytes(model) > 8 * 4  # its scales, and the DequantizeLinear
    assert "b_scale" not in model.graph.initializers


def test_a_result_that_is_not_rounded_keeps_its_bias() -> None:
    g = convolution()
    model = g.model(g.last)  # type: ignore[attr-defined]  # set above
    store_float_biases(model)
    assert dequantizer(bias_of(model)) is not None


def test_integers_that_a_float_does_not_hold_stay_integers() -> None:
    large = B.copy()
    large[3] = 2**30 + 1
    model = to_integers(convolution(large))
    store_float_biases(model)
    assert dequantizer(bias_of(model)) is not None


def test_a_bias_of_another_scale_stays() -> None:
    model = to_integers(convolution(off=1.5))
    store_float_biases(model)
    assert dequantizer(bias_of(model)) is not None


def test_a_second_run_changes_nothing() -> None:
    model = to_integers(convolution())
    store_float_biases(model)
    before = saved_bytes(model)
    store_float_biases(model)
    assert saved_bytes(model) == before
