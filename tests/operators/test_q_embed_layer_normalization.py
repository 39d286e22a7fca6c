from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq import reference
from onnxq.errors import ShapeError
from onnxq.operator import Float, IntegerCall
from onnxq.operators.q_embed_layer_normalization import QEmbedLayerNormalization
from tests.examples import model, weights
from tests.operators.builder import session

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

OP = QEmbedLayerNormalization()
WIDTH, WORDS, TOKENS = 16, 11, 5


def embedded() -> onnx.ModelProto:
    """EmbedLayerNormalization, as ONNX Runtime's transformer tools fuse it, and a MatMul."""
    node = helper.make_node(
        "EmbedLayerNormalization",
        ["ids", "segments", "word", "position", "segment", "gamma", "beta", "mask"],
        ["e", "count"],
        "embed",
        domain="com.microsoft",
        epsilon=1e-5,
    )
    constants: dict[str, Array] = {
        "word": weights(1, WORDS, WIDTH),
        "position": weights(2, TOKENS, WIDTH),
        "segment": weights(3, 2, WIDTH),
        "gamma": 1 + weights(4, WIDTH),
        "beta": weights(5, WIDTH),
        "w": weights(6, WIDTH, 8),
    }
    matmul = helper.make_node("MatMul", ["e", "w"], ["y"], "matmul")
    names = ("ids", "segments", "mask")
    made = model([node, matmul], constants, {name: ["N", TOKENS] for name in names}, {"y": 1})
    for value in made.graph.input:
        value.type.tensor_type.elem_type = TensorProto.INT32
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def tokens(rows: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(0).integers(0, WORDS, (rows, TOKENS)).astype(np.int32)
    return {"ids": ids, "segments": ids % 2, "mask": (ids > 2).astype(np.int32)}


def test_a_model_of_onnx_runtimes_quantizer_is_followed_to_the_bit(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    onnx.save(embedded(), tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    found = onnxq.cross_check(tmp_path / "int8.onnx", onnxq.Samples(tokens(4), batch_size=4))
    assert found.differing == 0
    assert not found.unchecked
    assert "QEmbedLayerNormalization" in {node.op_type for node in found.nodes}
    found.check()


@pytest.mark.parametrize("way", ["qdq", "qoperator", "dynamic"])
def test_the_float_operator_stays_float_in_a_model_that_is_quantized_around_it(way: str) -> None:
    if way == "dynamic":
        made = onnxq.quantize_dynamic(embedded(), objective="size")
    else:
        made = onnxq.quantize(embedded(), tokens(8), format=way)
    assert "EmbedLayerNormalization" in {node.op_type for node in made.graph}
    onnxq.cross_check(made, tokens(4)).check()
    decision = onnxq.prepare(embedded()).decisions["embed"]
    assert isinstance(decision, Float)
    assert "no integer form of com.microsoft.EmbedLayerNormalization" in decision.reason.words


def test_the_reference_runs_the_float_operator() -> None:
    (wanted,) = session(embedded()).run(None, tokens(3))
    (got,) = reference.evaluator(embedded()).run(None, tokens(3))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_an_id_beyond_the_embedding_is_refused() -> None:
    case = next(iter(OP.cases()))
    inputs = [np.full((2, 5), 7, np.int32), *case.inputs[1:]]
    with pytest.raises(ShapeError, match="an id is beyond"):
        OP.kernel(IntegerCall(OP.op_type, inputs, attributes=case.attributes or {}))
