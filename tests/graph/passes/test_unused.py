from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.unused import RemoveUnused

if TYPE_CHECKING:
    from tests.graph.conftest import Parse


def test_dead_nodes_and_weights_go_in_all_graphs(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2] x, float[2] unused) => (float[2] y) {
        dead = Add(x, w)
        y = If(c) <then_branch = t () => (float[2] p) { k = Constant<value = float {7}>()
            p = Neg(x) },
                   else_branch = e () => (float[2] q) { z = Abs(x) q = Add(x, v) }> }""",
        {"w": np.ones(2, np.float32), "v": np.ones(2, np.float32)},
    )
    LiftConstants()(model)
    assert RemoveUnused()(model).modified
    assert [n.op_type for n in model.graph.all_nodes()] == ["If", "Neg", "Add"]
    assert list(model.graph.initializers) == ["v"]
    assert not model.graph.node(0).attributes["then_branch"].as_graph().initializers
    assert [v.name for v in model.graph.inputs] == ["c", "x", "unused"]
    assert not RemoveUnused()(model).modified
