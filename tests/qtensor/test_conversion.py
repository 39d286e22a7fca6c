from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxq import dtypes, qtensor
from onnxq.errors import ModelError, UnsupportedError
from onnxq.qparams import PerBlock, QParams
from onnxq.qtensor import (
    QTensor,
    from_ir,
    from_onnx,
    quantize_per_channel,
    quantize_per_tensor,
    to_ir,
    to_onnx,
)

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
BLOCKED = QTensor(
    np.arange(24, dtype=np.int8).reshape(4, 6),
    QParams(
        np.full((4, 2), 0.5, np.float32), np.ones((4, 2), np.int8), qtensor.qint8, PerBlock(1, 4)
    ),
)
TENSORS = {
    **{
        t.name: quantize_per_tensor(X, 0.4, 1, t)
        for t in dtypes.all_qdtypes()
        if t.is_integer and t.name != "int32"
    },
    "int32": quantize_per_tensor(X, 0.4, 0, "int32"),
    "channels": quantize_per_channel(X, np.linspace(0.1, 1, 4), range(4), 0, qtensor.qint8),
    "last axis": quantize_per_channel(X, np.linspace(0.1, 1, 6), range(6), 1, qtensor.quint8),
    "one channel": quantize_per_channel(X[:1], [0.1], [3], 0, qtensor.qint8),
    "blocks": BLOCKED,
    "rank 0": quantize_per_tensor(X[0, 0], 0.1, 0, "quint8"),
    "empty": quantize_per_tensor(X[:0], 0.1, 0, "quint8"),
}


def run(
    node: onnx.NodeProto, initializers: tuple[onnx.TensorProto, ...], shape: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "g", [], [output], list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return np.asarray(session.run(None, {})[0])


@pytest.mark.parametrize("name", TENSORS)
def test_onnxruntime_reads_the_same_real_values(name: str) -> None:
    y = TENSORS[name]
    node, initializers = to_onnx(y, "w")
    assert [t.name for t in initializers] == ["w_quantized", "w_scale", "w_zero_point"]
    assert node.output == ["w"]
    assert np.array_equal(run(node, initializers, y.size()), y.dequantize())


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_comes_back_as_it_was(name: str) -> None:
    y = TENSORS[name]
    assert from_ir(to_ir(y, "w")).equal(y)
    node, initializers = to_onnx(y, "w")
    assert from_onnx(node, initializers).equal(y)


def test_four_bits_take_half_a_byte() -> None:
    _, (integers, _, zero_point) = to_onnx(TENSORS["int4"], "w")
    assert integers.data_type == zero_point.data_type == TensorProto.INT4
    assert len(integers.raw_data) == 12


def test_an_absent_zero_point_is_zero() -> None:
    node, initializers = to_onnx(quantize_per_tensor(X, 0.1, 0, "qint8"), "w")
    del node.input[2]
    assert from_onnx(node, initializers).q_zero_point() == 0


def test_one_scale_in_a_vector_is_per_tensor() -> None:
    """torch's older exporter writes one scale in a vector."""
    node, (integers, scale, zero_point) = to_onnx(quantize_per_tensor(X, 0.1, 3, "quint8"), "w")
    scale.dims.append(1)
    zero_point.dims.append(1)
    assert from_onnx(node, (integers, scale, zero_point)).q_zero_point() == 3


def test_what_is_no_constant_is_refused() -> None:
    node, initializers = to_onnx(TENSORS["int8"], "w")
    with pytest.raises(ModelError, match="input 'w_quantized' is no initializer"):
        from_onnx(node, initializers[1:])
    with pytest.raises(ModelError, match="is a Relu; wanted DequantizeLinear"):
        from_ir(ir.node("Relu", [ir.val("x")]))
    with pytest.raises(ModelError, match="no integers or no scale"):
        from_ir(ir.node("DequantizeLinear", [None, None]))


def test_types_without_qparams_are_refused() -> None:
    def constant(array: npt.NDArray[np.generic]) -> ir.Value:
        return ir.Value(name="c", const_value=ir.tensor(array))

    half = [constant(np.zeros(2, np.int8)), constant(np.array(1, np.float16))]
    with pytest.raises(UnsupportedError, match="scale of float16"):
        from_ir(ir.node("DequantizeLinear", half))
    wide = [constant(np.zeros(2, np.int64)), constant(np.array(1, np.float32))]
    with pytest.raises(UnsupportedError, match="integers of int64"):
        from_ir(ir.node("DequantizeLinear", wide))
