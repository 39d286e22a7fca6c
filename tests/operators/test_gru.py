from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.operator import Float, Precision
from onnxq.operators.gru import GRU
from tests.operators import builder
from tests.operators.dynamic_case import dynamic_model, dynamic_rule_of

if TYPE_CHECKING:
    from pathlib import Path

# What GRU shares with RNN (exactness, bounds, activations, layouts) is in test__recurrent.py.
OPERATOR = GRU()
CASES = {case.name: case for case in OPERATOR.cases()}


def bodies(model: ir.Model, folder: Path) -> list[list[str]]:
    """Operators of each Scan's body as ONNX Runtime runs it."""
    builder.optimized_ops(ir.to_proto(model), folder)
    return [
        [inner.op_type for inner in attribute.g.node]
        for node in onnx.load(folder / "optimized.onnx").graph.node
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    ]


@pytest.mark.parametrize(("name", "matmuls"), [("bias", 2), ("linear before reset", 1)])
def test_the_recurrent_matmuls_fuse_in_the_body(name: str, matmuls: int, tmp_path: Path) -> None:
    model = dynamic_model(OPERATOR, CASES[name], Precision.DYNAMIC_INT8)
    (body,) = bodies(model, tmp_path)
    assert body.count("DynamicQuantizeMatMul") == matmuls
    assert len(body) == 12  # each costs half a microsecond per step


def test_a_bias_of_the_reset_gate_stays_inside_where_it_must() -> None:
    case = CASES["linear before reset"]
    model = dynamic_model(OPERATOR, case, Precision.DYNAMIC_INT8)
    inside = model.graph.initializers["node_recurrent0_bias"].const_value
    assert inside is not None
    bias = np.asarray(case.inputs[3])[0]
    assert np.array_equal(inside.numpy(), np.concatenate([np.zeros(8, np.float32), bias[20:]]))


def test_it_has_no_static_form_and_says_so() -> None:
    found = OPERATOR.rule(builder.node_of(OPERATOR, CASES["plain"]))
    assert isinstance(found, Float)
    assert "dynamic" in found.reason.words


def test_integers_are_its_usual_form() -> None:
    rule = dynamic_rule_of(OPERATOR, CASES["plain"])
    assert rule.precisions == (
        Precision.DYNAMIC_INT8,
        Precision.WEIGHT_ONLY,
        Precision.WEIGHT_ONLY_FLOAT16,
    )
    assert rule.saturating_pairs
