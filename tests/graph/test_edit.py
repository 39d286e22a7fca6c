from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.edit import FreeNames, all_nodes, all_values, bypass

if TYPE_CHECKING:
    from tests.graph.conftest import Parse


def test_free_names_are_given_out_once(parse: Parse) -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { [n] a = Add(x, w) y = Relu(a) }", {"w": np.ones(2, "f")}
    )
    names = FreeNames(model)
    assert [names.value(n) for n in ("x", "w", "a", "b", "b", "w")] == [
        "x_1",
        "w_1",
        "a_1",
        "b",
        "b_1",
        "w_2",
    ]
    assert [names.node(n) for n in ("n", "m")] == ["n_1", "m"]


def test_all_nodes_and_values_come(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { p = Neg(x) },
                   else_branch = e () => (float[2] q) { q = Abs(x) }> }"""
    )
    assert [n.op_type for n in all_nodes(model)] == ["If", "Neg", "Abs"]
    assert [v.name for v in all_values(model.graph)] == ["c", "x", "y"]


def test_bypass_hands_the_type_on(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = local.f(x) y = Identity(a) }")
    assert bypass(model.graph.node(1))
    (node,) = model.graph
    assert node.outputs[0].name == "y"
    assert node.outputs[0].shape == [2]
