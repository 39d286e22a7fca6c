from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.passes.lift_constants import LiftConstants
from tests.examples import tensor_of

if TYPE_CHECKING:
    from tests.graph.conftest import Parse


def test_constants_of_all_kinds_become_initializers_of_their_name(parse: Parse) -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) {
        a = Constant<value = float[2] {1, 2}>()  b = Constant<value_float = 3.0>()
        i = Constant<value_ints = [0]>()  lo = Constant<value = float {0}>()
        c = Add(x, a) d = Mul(c, b) e = Clip(d, lo) f = Unsqueeze(e, i) y = Squeeze(f, i) }"""
    )
    assert LiftConstants()(model).modified
    assert {n: tensor_of(v).numpy().tolist() for n, v in model.graph.initializers.items()} == {
        "a": [1, 2],
        "b": 3,
        "i": [0],
        "lo": 0,
    }
    assert all(n.op_type != "Constant" for n in model.graph)
    assert not LiftConstants()(model).modified


def test_a_constant_in_a_branch_belongs_to_the_branch(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { k = Constant<value = float {7}>()
            p = Add(x, k) },
                   else_branch = e () => (float[2] q) { q = Neg(x) }> }"""
    )
    LiftConstants()(model)
    assert "k" in model.graph.node(0).attributes["then_branch"].as_graph().initializers
    assert not model.graph.initializers


def test_a_constant_that_is_an_output_stays(parse: Parse) -> None:
    model = parse(
        "g (float[2] x) => (float k, float[2] y) { k = Constant<value_float=1.0>() y = Neg(x) }"
    )
    assert not LiftConstants()(model).modified


def test_tensors_are_shared_not_copied() -> None:
    array = np.ones((3, 4), np.float32)
    constant = ir.node("Constant", [], {"value": ir.tensor(array, name="w")})
    constant.outputs[0].name = "w"
    x = ir.val("x", ir.DataType.FLOAT, [3, 4])
    add = ir.node("Add", [x, constant.outputs[0]])
    graph = ir.Graph([x], add.outputs, nodes=[constant, add], opset_imports={"": 21}, name="g")
    LiftConstants()(ir.Model(graph, ir_version=10))
    assert np.shares_memory(tensor_of(graph.initializers["w"]).numpy(), array)
