"""Integers of 4 and 2 bits: packed in the file, and the same numbers as in bytes when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.dtypes import INT2, INT4, INT8, UINT4
from onnxq.graph.io import model_hash
from onnxq.graph.saving import saved_bytes
from onnxq.ort import runtime
from onnxq.qdq.narrow import LEAST_BYTES, narrow_types, packed_source, store_narrow, unpacked
from onnxq.qparams import PerBlock, QParams, per_tensor

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from onnxq.dtypes import QDType


def stored(integers: Array, opset: int = 25) -> ir.Model:
    """y = MatMul(x, DQ(w)) of constant integers."""
    w = ir.Value(name="w_quantized", const_value=ir.tensor(integers, name="w_quantized"))
    w.type, w.shape = ir.TensorType(w.const_value.dtype), ir.Shape(integers.shape)  # type: ignore[union-attr]  # just made
    scale = ir.Value(name="s", const_value=ir.tensor(np.float32(0.1), name="s"))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 32]))
    real = ir.node("DequantizeLinear", [w, scale], name="w_dequantize")
    matmul = ir.node("MatMul", [x, real.outputs[0]], name="matmul")
    matmul.outputs[0].name, matmul.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x],
        [matmul.outputs[0]],
        nodes=[real, matmul],
        initializers=[w, scale],
        opset_imports={"": opset},
        name="g",
    )
    real.outputs[0].name = "w_dequantized"
    return ir.Model(graph, ir_version=11)


def integers(low: int, high: int, kind: type[np.generic] = np.int8) -> Array:
    values: Array = np.random.default_rng(0).integers(low, high + 1, (32, 32)).astype(kind)
    values[0, :2] = low, high
    return values


def packed_types(model: ir.Model) -> list[str]:
    sources = [packed_source(node) for node in model.graph]
    return [str(source.dtype) for source in sources if source is not None]


@pytest.mark.parametrize(
    ("low", "high", "types", "wanted"),
    [
        (-8, 7, [INT4], ["INT4"]),
        (-8, 7, [INT2, INT4], ["INT4"]),
        (-2, 1, [INT2, INT4], ["INT2"]),
        (-9, 7, [INT2, INT4], []),
        (-8, 8, [INT4], []),
        (0, 7, [UINT4], []),  # of int8, which UINT4 does not become
        (-8, 7, [], []),
    ],
)
def test_integers_take_the_narrowest_type_that_holds_them(
    low: int, high: int, types: list[QDType], wanted: list[str]
) -> None:
    model = stored(integers(low, high))
    store_narrow(model, types)
    assert packed_types(model) == wanted


def test_unsigned_integers_are_packed_as_unsigned_ones() -> None:
    model = stored(integers(0, 15, np.uint8))
    store_narrow(model, [INT4, UINT4])
    assert packed_types(model) == ["UINT4"]


def test_small_constants_stay_as_they_are() -> None:
    small = integers(-8, 7)[:2, :32]
    assert small.nbytes < LEAST_BYTES
    model = stored(small)
    store_narrow(model, [INT4])
    assert packed_types(model) == []


def test_a_packed_weight_takes_half_the_bytes_and_gives_the_same_numbers() -> None:
    plain, model = stored(integers(-8, 7)), stored(integers(-8, 7))
    store_narrow(model, [INT4])
    assert saved_bytes(plain) - saved_bytes(model) > 32 * 32 / 2 - 150  # names, and the Cast
    x = np.random.default_rng(1).normal(size=(2, 32)).astype(np.float32)
    results = []
    for each in (plain, model, unpacked(model)):
        with runtime.open_session(each, threads=1) as session:
            results.append(session.run({"x": x})[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_onnxruntime_reads_packed_weights_with_the_kernels_of_bytes() -> None:
    plain, model = stored(integers(-8, 7)), stored(integers(-8, 7))
    store_narrow(model, [INT4])
    kinds = [[n.op_type for n in runtime.optimized_graph(m).graph] for m in (plain, model)]
    assert kinds[0] == kinds[1]


def test_unpacking_gives_the_model_as_it_was_before() -> None:
    plain, model = stored(integers(-8, 7)), stored(integers(-8, 7))
    store_narrow(model, [INT4])
    packed_hash = model_hash(model)
    assert model_hash(unpacked(model)) == model_hash(plain)
    assert model_hash(model) == packed_hash
    assert unpacked(plain) is plain


def test_types_of_weights_in_blocks_are_no_narrow_types() -> None:
    blocks = QParams(np.ones((2, 2), np.float32), np.zeros((2, 2), np.int8), INT4, PerBlock(0, 16))
    assert narrow_types([blocks, per_tensor(1, 0, INT8)]) == set()
    assert narrow_types([blocks, per_tensor(1, 0, INT2)]) == {INT2}
