from __future__ import annotations

import dataclasses

import onnx_ir as ir

from onnxq.ort.cached_attention import can_share, positions, query_heads
from tests.tiny_decoder import TINY, tiny_decoder

PAST = ("past_key_values.0.key", "past_key_values.0.value")


def test_attention_with_a_cache_says_heads_positions_and_whether_buffers_are_shared() -> None:
    model = tiny_decoder(dataclasses.replace(TINY, context=48))
    assert (query_heads(model), positions(model), can_share(model, PAST)) == (2, 48, True)


def test_a_cache_that_another_node_reads_is_not_shared() -> None:
    model = tiny_decoder()
    model.graph.append(ir.node("Identity", [model.graph.inputs[3]]))
    assert not can_share(model, PAST)


def test_other_graphs_say_nothing() -> None:
    x = ir.val("x", ir.DataType.FLOAT, [1])
    node = ir.node("Identity", [x])
    model = ir.Model(ir.Graph([x], node.outputs, nodes=[node]), ir_version=10)
    assert (query_heads(model), positions(model), can_share(model, PAST)) == (None, None, False)
