from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.checking.integers import QuantizedTensor, find_integers
from onnxq.dtypes import INT8, UINT8, UINT16
from onnxq.qdq.fuse import QPARAMS_KEY
from onnxq.qparams import per_tensor
from onnxq.static.insertion.channel_scales import CHANNEL_SCALES_KEY
from tests.examples import as_ir, model, quantized_matmul

if TYPE_CHECKING:
    from onnxq.core.arrays import Array


def found(proto: onnx.ModelProto) -> list[QuantizedTensor]:
    return find_integers(as_ir(proto))


def test_integers_come_with_the_qparams_of_their_quantize_linear() -> None:
    got = found(quantized_matmul(np.array(3, np.uint8)))
    assert [c.name for c in got] == ["x_quantized", "product_quantized"]
    assert [c.tensor for c in got] == ["x", "product"]
    assert got[0].qparams == per_tensor(0.02, 3, UINT8)


def test_int8_and_uint16_are_told_apart_by_the_zero_point() -> None:
    assert found(quantized_matmul(np.array(-3, np.int8)))[0].qparams == per_tensor(0.02, -3, INT8)
    assert found(quantized_matmul(np.array(9, np.uint16)))[0].qparams == per_tensor(0.02, 9, UINT16)


def test_constants_are_no_activations() -> None:
    assert "w_quantized" not in [c.name for c in found(quantized_matmul(np.array(3, np.uint8)))]


def moved(op_type: str, constants: dict[str, Array], *names: str) -> onnx.ModelProto:
    """x -> Q -> op on integers -> DQ, the DQ with scale and zero point of other names."""
    q: dict[str, Array] = {"s": np.array(0.5, np.float32), "z": np.array(7, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_quantized"], "q"),
        helper.make_node(op_type, ["x_quantized", *names], ["y_quantized"], "op"),
        helper.make_node("DequantizeLinear", ["y_quantized", "s", "z"], ["y"], "dq"),
    ]
    return model(nodes, q | constants, {"x": [2, 3]}, opset=21)


def test_integers_of_a_plain_op_take_the_qparams_of_their_dequantize_linear() -> None:
    got = found(moved("Transpose", {}))
    assert got[1] == QuantizedTensor("y_quantized", "y", per_tensor(0.5, 7, UINT8))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (QPARAMS_KEY, ""),
        (QPARAMS_KEY, "[]"),
        (QPARAMS_KEY, '{"granularity": "per_word"}'),
        (QPARAMS_KEY, '{"granularity": "per_tensor"}'),
        (CHANNEL_SCALES_KEY, "~~~"),
        (CHANNEL_SCALES_KEY, "00"),
    ],
)
def test_edited_metadata_is_said_to_be_unreadable(key: str, text: str) -> None:
    edited = as_ir(quantized_matmul(np.array(3, np.uint8)))
    values = {v.name: v for node in edited.graph for v in node.outputs}
    values["x_quantized"].metadata_props[key] = text
    assert "metadata cannot be read" in find_integers(edited)[0].problem


def test_a_missing_zero_point_is_uint8_zero() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["x_quantized"], "q"),
        helper.make_node("DequantizeLinear", ["x_quantized", "s"], ["y"], "dq"),
    ]
    proto = model(nodes, {"s": np.array(0.5, np.float32)}, {"x": [2]}, opset=21)
    assert found(proto)[0].qparams == per_tensor(0.5, 0, UINT8)


def test_what_cannot_be_compared_says_why() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["integers"], "q1"),
        helper.make_node("QuantizeLinear", ["x", "many", "zeros"], ["x_quantized"], "q2", axis=1),
        helper.make_node("QuantizeLinear", ["x", "s", "z4"], ["n_quantized"], "q3"),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["d_quantized", "ds", "dz"], "q4"),
        helper.make_node("DequantizeLinear", ["d_quantized", "ds", "dz"], ["y"], "dq"),
    ]
    constants: dict[str, Array] = {
        "s": np.array(0.5, np.float32),
        "z": np.array(7, np.uint8),
        "many": np.ones(3, np.float32),
        "zeros": np.zeros(3, np.uint8),
    }
    proto = model(nodes, constants, {"x": [2, 3]}, opset=21)
    proto.graph.initializer.append(helper.make_tensor("z4", onnx.TensorProto.UINT4, [], [0]))
    problems = {c.name: c.problem for c in found(proto)}
    assert [c.name for c in found(proto) if c.qparams is not None] == ["integers"]
    assert "3 scales" in problems["x_quantized"]
    assert "uint4" in problems["n_quantized"]
    assert "not a constant" in problems["d_quantized"]


def test_integers_of_another_tool_stand_for_what_their_quantize_linear_reads() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_QuantizeLinear_Output"], "q"),
        helper.make_node(
            "DequantizeLinear", ["x_QuantizeLinear_Output", "s", "z"], ["x_DequantizeLinear_Output"]
        ),
        helper.make_node("QuantizeLinear", ["x_DequantizeLinear_Output", "s", "z"], ["again"]),
        helper.make_node("DequantizeLinear", ["again", "s", "z"], ["twice"]),
        helper.make_node("Neg", ["twice"], ["y_QuantizeLinear_Input"]),
        helper.make_node("QuantizeLinear", ["y_QuantizeLinear_Input", "s", "z"], ["q_of_y"]),
        helper.make_node("DequantizeLinear", ["q_of_y", "s", "z"], ["y"]),
        helper.make_node("QuantizeLinear", ["w", "s", "z"], ["w_QuantizeLinear_Output"]),
    ]
    constants: dict[str, Array] = {
        "s": np.array(0.5, np.float32),
        "z": np.array(7, np.uint8),
        "w": np.ones(3, np.float32),
    }
    got = found(model(nodes, constants, {"x": [2, 3]}, {"y": 2}, opset=21))
    assert [(c.name, c.tensor) for c in got] == [("x_QuantizeLinear_Output", "x"), ("q_of_y", "y")]


def test_integers_take_the_qparams_that_an_operator_on_integers_reads_behind_them() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_quantized"]),
        helper.make_node("Flatten", ["x_quantized"], ["f_quantized"]),
        helper.make_node(
            "QLinearSigmoid",
            ["f_quantized", "s", "z", "y_scale", "z"],
            ["y_quantized"],
            domain="com.microsoft",
        ),
        helper.make_node("DequantizeLinear", ["y_quantized", "y_scale", "z"], ["y"]),
    ]
    constants: dict[str, Array] = {
        "s": np.array(0.5, np.float32),
        "z": np.array(7, np.uint8),
        "y_scale": np.array(0.25, np.float32),
    }
    got = found(model(nodes, constants, {"x": [2, 3]}))
    assert got[1] == QuantizedTensor("f_quantized", "f", per_tensor(0.5, 7, UINT8))
