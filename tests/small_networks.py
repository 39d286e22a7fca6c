"""Networks of a few nodes, one of each kind that a choice of forms tells apart."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.examples import model, weights

WIDTH, HEADS, TOKENS, WORDS = 32, 2, 6, 40
SIZE = WIDTH // HEADS


def encoder_block() -> onnx.ModelProto:
    """x + attention(norm(x)), then y + down(gelu(up(norm(y)))), for (1, TOKENS, WIDTH)."""
    node = helper.make_node
    square = ("query", "key", "value", "out")
    constants = {
        **{f"w_{name}": weights(i, WIDTH, WIDTH) for i, name in enumerate(square)},
        "w_up": weights(5, WIDTH, 2 * WIDTH),
        "w_down": weights(6, 2 * WIDTH, WIDTH),
        "b_down": weights(7, WIDTH),
        "one": np.ones(WIDTH, np.float32),
        "zero": np.zeros(WIDTH, np.float32),
        "scale": np.array(SIZE**-0.5, np.float32),
        "apart": np.array([1, TOKENS, HEADS, SIZE]),
        "side_by_side": np.array([1, TOKENS, WIDTH]),
    }
    nodes = [node("LayerNormalization", ["x", "one", "zero"], ["n1"], "norm1")]
    for name in ("query", "key", "value"):
        perm = [0, 2, 3, 1] if name == "key" else [0, 2, 1, 3]
        heads = "heads" if name == "query" else f"{name}_heads"
        nodes += [
            node("MatMul", ["n1", f"w_{name}"], [f"{name}_p"], f"weight_{name}"),
            node("Reshape", [f"{name}_p", "apart"], [f"{name}_r"], f"{name}_reshape"),
            node("Transpose", [f"{name}_r"], [f"{name}_h"], heads, perm=perm),
        ]
    nodes += [
        node("MatMul", ["query_h", "key_h"], ["s"], "scores"),
        node("Mul", ["s", "scale"], ["t"], "scaled"),
        node("Softmax", ["t"], ["u"], "softmax", axis=-1),
        node("MatMul", ["u", "value_h"], ["v"], "mixed"),
        node("Transpose", ["v"], ["v1"], "heads_back", perm=[0, 2, 1, 3]),
        node("Reshape", ["v1", "side_by_side"], ["v2"], "together"),
        node("MatMul", ["v2", "w_out"], ["o"], "weight_out"),
        node("Add", ["x", "o"], ["r1"], "sum1"),
        node("LayerNormalization", ["r1", "one", "zero"], ["n2"], "norm2"),
        node("MatMul", ["n2", "w_up"], ["h"], "weight_up"),
        node("Gelu", ["h"], ["g"], "gelu"),
        node("MatMul", ["g", "w_down"], ["d"], "weight_down"),
        node("Add", ["d", "b_down"], ["e"], "bias_down"),
        node("Add", ["r1", "e"], ["y"], "sum2"),
    ]
    return model(nodes, constants, {"x": [1, TOKENS, WIDTH]}, opset=20)


def patches() -> onnx.ModelProto:
    """A convolution cuts patches p of (1, 3, 8, 8); y = p + down(gelu(up(norm(p))))."""
    node = helper.make_node
    constants = {
        "w_cut": weights(0, WIDTH, 3, 2, 2),
        "rows": np.array([1, WIDTH, 16]),
        "places": weights(1, 1, 16, WIDTH),
        "one": np.ones(WIDTH, np.float32),
        "w_up": weights(2, WIDTH, 2 * WIDTH),
        "w_down": weights(3, 2 * WIDTH, WIDTH),
    }
    nodes = [
        node("Conv", ["x", "w_cut"], ["c"], "cut", kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["c", "rows"], ["f"], "flat"),
        node("Transpose", ["f"], ["t"], "turned", perm=[0, 2, 1]),
        node("Add", ["t", "places"], ["p"], "placed"),
        node("LayerNormalization", ["p", "one"], ["n"], "norm"),
        node("MatMul", ["n", "w_up"], ["h"], "up"),
        node("Gelu", ["h"], ["g"], "gelu"),
        node("MatMul", ["g", "w_down"], ["d"], "down"),
        node("Add", ["p", "d"], ["y"], "sum"),
    ]
    return model(nodes, constants, {"x": [1, 3, 8, 8]}, opset=20)


def perceptron() -> onnx.ModelProto:
    """Gemm, Relu, Gemm, Relu, Gemm."""
    node = helper.make_node
    constants = {
        **{f"w{i}": weights(i, WIDTH, WIDTH) for i in range(3)},
        **{f"b{i}": weights(9 + i, WIDTH) for i in range(3)},
    }
    nodes = [
        node("Gemm", ["x", "w0", "b0"], ["a"], "first"),
        node("Relu", ["a"], ["b"], "relu"),
        node("Gemm", ["b", "w1", "b1"], ["c"], "second"),
        node("Relu", ["c"], ["d"], "relu2"),
        node("Gemm", ["d", "w2", "b2"], ["y"], "third"),
    ]
    return model(nodes, constants, {"x": ["N", WIDTH]})


def embedded(kind: str) -> onnx.ModelProto:
    """Rows of a table, and a recurrence over them; kind: LSTM or GRU."""
    gates = {"LSTM": 4, "GRU": 3}[kind]
    arrays = {
        "rows": weights(1, WORDS, WIDTH),
        "w": weights(2, 1, gates * WIDTH, WIDTH),
        "r": weights(3, 1, gates * WIDTH, WIDTH),
        "b": weights(4, 1, 2 * gates * WIDTH),
    }
    nodes = [
        helper.make_node("Gather", ["rows", "ids"], ["e"], "table"),
        helper.make_node(kind, ["e", "w", "r", "b"], ["y"], "layer", hidden_size=WIDTH),
    ]
    graph = helper.make_graph(
        nodes,
        "embedded",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [TOKENS, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def repeated() -> onnx.ModelProto:
    """A MatMul that a Loop repeats four times, large enough to be faster on integers."""
    side = 16 * WIDTH
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["p"], "inside"),
            helper.make_node("Tanh", ["p"], ["next"], "squashed"),
            helper.make_node("Identity", ["go"], ["goes"], "on"),
        ],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("h", TensorProto.FLOAT, [8, side]),
        ],
        [info("goes", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, [8, side])],
    )
    constants = {
        "w": weights(1, side, side),
        "times": np.array(4),
        "true": np.array(True),
    }
    nodes = [helper.make_node("Loop", ["times", "true", "x"], ["y"], "loop", body=body)]
    return model(nodes, constants, {"x": [8, side]})
