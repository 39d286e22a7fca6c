from __future__ import annotations

import numpy as np
from onnx import helper

import onnxq
from onnxq.graph.sizes import sizes_of
from onnxq.operator import Precision
from onnxq.static.choosing.weighing import Weighing
from onnxq.times import costs_of
from tests.examples import model, weights

NODE = helper.make_node
TOKENS, WIDTH = 16, 32


def test_a_bias_inside_of_a_float_result_is_no_sum_of_integers() -> None:
    """A MatMul whose bias has no known time would keep its integers, however long they take."""
    nodes = [
        NODE("MatMul", ["x", "w"], ["m"], "matmul"),
        NODE("Add", ["m", "b"], ["a"], "bias"),
        NODE("LayerNormalization", ["a", "channel_scale"], ["y"], "norm"),
    ]
    constants = {
        "w": weights(1, WIDTH, WIDTH),
        "b": weights(2, WIDTH),
        "channel_scale": np.ones(WIDTH, np.float32),
    }
    source = model(nodes, constants, {"x": ["N", TOKENS, WIDTH]})
    prepared = onnxq.prepare(source, None, "x86-vnni")
    assert prepared.precisions["matmul"].precision is Precision.INT8_FLOAT_OUTPUT
    table = costs_of("x86-vnni")
    assert table is not None
    weighing = Weighing(prepared, sizes_of(prepared.model, {"x": (1, TOKENS, WIDTH)}), table)
    assert weighing.precisions["bias"] is Precision.FLOAT
    assert weighing.knows(list(prepared.model.graph))
