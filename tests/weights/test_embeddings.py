"""Embeddings in groups, and linear layers whose weight is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.errors import CalibrationError, QConfigError
from onnxq.graph.walk import node_name, walk
from onnxq.ort import runtime
from onnxq.reference import evaluator
from onnxq.weights.embeddings import find_ties
from tests.dynamic_models import normal, op_types, parsed, run
from tests.weights.block_models import canonical

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Array

TABLE = normal(50, 64)
IDS = np.array([[3, 0, 49]])
HEADS = {
    "turned": ("y = MatMul(h, turned)", {"turned": TABLE.T.copy()}),
    "gemm": ("r = Squeeze(h) y = Gemm<transB = 1>(r, table)", {}),
}


def tied(head: str) -> onnx.ModelProto:
    text, weights = HEADS[head]
    size = "1, 3, 50" if head == "turned" else "3, 50"
    graph = f"g (int64[1, 3] ids) => (float[{size}] y) {{ [e] h = Gather(table, ids) [p] {text} }}"
    return parsed(graph, {"table": TABLE, **weights})


def integers_of(model: object) -> list[Array]:
    return [
        v.const_value.numpy()
        for v in model.graph.initializers.values()  # type: ignore[attr-defined]
        if str(v.dtype) == "UINT8" and "integers" in str(v.name)
    ]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.filterwarnings("ignore:output")  # 2 bits of random numbers
def test_one_set_of_integers_serves_lookup_and_head(head: str, bits: int) -> None:
    made = onnxq.quantize_weights(tied(head), embedding_bits=bits, accuracy_level=0)
    assert {"GatherBlockQuantized", "MatMulNBits"} <= set(op_types(made))
    assert [c.shape for c in integers_of(made)] == [(50, 2, 32 * bits // 8)]
    (wanted,) = evaluator(made).run(None, {"ids": IDS})
    found = run(made, {"ids": IDS})
    # 64 products of numbers up to 4, in float32: 1e-4 is above 64 ulps of the largest sum
    np.testing.assert_allclose(found, np.reshape(wanted, found.shape), rtol=0, atol=1e-4)


def test_rows_of_an_embedding_that_no_linear_layer_reads_need_no_reshape() -> None:
    graph = "g (int64[1, 3] ids) => (float[1, 3, 8] y) { h = Gather(table, ids) y = MatMul(h, w) }"
    made = onnxq.quantize_weights(
        parsed(graph, {"table": TABLE, "w": normal(64, 8)}), embedding_bits=4
    )
    assert "Reshape" not in op_types(made)
    assert (50, 32) in [c.shape for c in integers_of(made)]


def test_a_float_embedding_and_its_transpose_are_stored_once() -> None:
    graph = (
        "g (int64[1, 3] ids) => (float[1, 3, 50] y) "
        "{ h = Gather(table, ids) k = MatMul(h, w) y = MatMul(k, turned) }"
    )
    weights = {"table": TABLE, "turned": TABLE.T.copy(), "w": normal(64, 64)}
    made = onnxq.quantize_weights(parsed(graph, weights))
    shapes = [v.shape for v in made.graph.initializers.values() if str(v.dtype) == "FLOAT"]
    assert [tuple(shape) for shape in shapes if shape and len(shape) == 2] == [(50, 64)]


@pytest.mark.parametrize(
    ("width", "reason"), [(40, "groups of 32 do not divide"), (64, "it is excluded")]
)
def test_a_lookup_that_stays_in_float_keeps_its_head_there(width: int, reason: str) -> None:
    table = normal(50, width)
    graph = (
        f"g (int64[1, 3] ids, float[1, {width}] x) => (float[1, 3, 50] y, float[1, 8] z) "
        "{ [e] h = Gather(table, ids) y = MatMul(h, turned) z = MatMul(x, w) }"
    )
    weights = {"table": table, "turned": table.T.copy(), "w": normal(width, 8)}
    excluded = ["e"] if "excluded" in reason else []
    made = onnxq.quantize_weights(parsed(graph, weights), embedding_bits=4, exclude=excluded)
    assert sorted(op_types(made)) == ["Gather", "MatMul", "MatMulNBits", "Transpose"]


def test_a_matmul_over_the_rows_of_an_embedding_has_no_part_in_its_integers() -> None:
    square = normal(64, 64)
    graph = "g (int64[2] ids) => (float[2, 64] y) { h = Gather(t, ids) y = MatMul(h, t) }"
    made = onnxq.quantize_weights(parsed(graph, {"t": square}), embedding_bits=8)
    assert sorted(op_types(made)) == ["GatherBlockQuantized", "MatMul"]


def test_ties_name_the_embedding_and_whether_it_is_turned() -> None:
    nodes = [node for node, _ in walk(canonical(tied("turned")).graph)]
    ties = find_ties(nodes)
    assert [(t.embedding, t.turned) for t in ties.values()] == [("table", False), ("table", True)]
    assert {t.lookup for t in ties.values()} == {node_name(nodes[0])}


def test_embeddings_in_operators_of_all_runtimes_are_refused() -> None:
    with pytest.raises(QConfigError, match="rows of blocks are looked up"):
        onnxq.quantize_weights(tied("turned"), embedding_bits=4, format="qdq")


def test_embeddings_that_are_asked_for_and_not_there_are_noted() -> None:
    text = "g (float[n, 64] x) => (float[n, 8] y) { y = MatMul(x, w) }"
    made = onnxq.quantize_weights(parsed(text, {"w": normal(64, 8)}), embedding_bits=4)
    assert made.verdict is not None
    [note] = made.verdict.notes
    assert "(--embedding-bits) has no effect: the model has no embedding" in note


def test_indices_that_the_embedding_lacks_are_said() -> None:
    with (
        runtime.open_session(canonical(tied("turned")), threads=1) as session,
        pytest.raises(CalibrationError, match="was the text tokenized for another one"),
    ):
        session.run({"ids": IDS + 50})
