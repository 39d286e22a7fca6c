from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq.qparams.group_spec import BlockSpec, Method
from onnxq.weights.plan_weights import InBlocks
from onnxq.weights.stored_codes import StoredCodes, drop_if_unread

DECISION = InBlocks(BlockSpec(), Method.RTN, 1, "w", inputs_first=True, outputs=8, inputs=32)


def graph() -> ir.Graph:
    return ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2, 2] x) => (float[2, 2] y)'
        " <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"
    ).graph


def test_codes_of_one_weight_are_made_once_in_each_graph() -> None:
    stored, first, second = StoredCodes(), graph(), graph()
    calls = []

    def make() -> list[ir.Value]:
        calls.append(1)
        return [ir.val("codes", const_value=ir.tensor(np.zeros(2, np.uint8)))]

    others = replace(DECISION, slot=0), replace(DECISION, tensor="v")
    codes = stored.of(first, DECISION, make)
    assert stored.of(first, others[0], make) is codes
    assert stored.of(first, others[1], make) is not codes
    assert stored.of(second, DECISION, make) is not codes
    assert len(calls) == 3


def test_a_weight_goes_when_nothing_reads_it() -> None:
    found = graph()
    weight = found.initializers["w"]
    drop_if_unread(weight)
    assert "w" in found.initializers
    found.node(0).replace_input_with(1, found.inputs[0])
    drop_if_unread(weight)
    assert "w" not in found.initializers
