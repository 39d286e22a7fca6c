from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.errors import ModelError
from onnxq.graph.passes.inline import InlineFunctions

if TYPE_CHECKING:
    from tests.graph.conftest import Run

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'
FUNCTION = (
    '<domain: "local", opset_import: ["" : {opset}]> '
    "twice (a) => (b) {{ c = Add(a, a) b = Relu(c) }}"
)


def model_of(body: str, opset: int = 21) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f"{HEADER} {body} {FUNCTION.format(opset=opset)}"))


def test_calls_are_replaced_by_bodies(run: Run) -> None:
    model = model_of("g (float[2] x) => (float[2] y) { t = local.twice(x) y = local.twice(t) }")
    assert InlineFunctions()(model).modified
    assert [n.op_type for n in model.graph] == ["Add", "Relu", "Add", "Relu"]
    assert not model.functions
    assert model.graph.outputs[0].name == "y"
    assert run(model, {"x": np.array([1, -1], np.float32)})[0].tolist() == [4, 0]
    assert not InlineFunctions()(model).modified


def test_calls_in_branches_are_inlined() -> None:
    model = model_of(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { p = local.twice(x) },
                   else_branch = e () => (float[2] q) { q = Neg(x) }> }"""
    )
    InlineFunctions()(model)
    assert [n.op_type for n in model.graph.all_nodes()] == ["If", "Add", "Relu", "Neg"]


def test_a_function_of_another_opset_is_an_error_with_a_remedy() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { y = local.twice(x) }", opset=17)
    with pytest.raises(ModelError, match="without functions"):
        InlineFunctions()(model)
