from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.no_ops import RemoveNoOps

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Parse, Run


def ops(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph.all_nodes()]


@pytest.mark.parametrize(
    "call",
    [
        "Identity(a)",
        "Dropout(a)",
        "Dropout(a, ratio)",
        "Cast<to=1>(a)",
        "CastLike(a, x)",
        "Dropout(a, ratio, off)",
        "Transpose<perm = [0]>(a)",
    ],
)
def test_a_node_that_returns_its_input_is_taken_out(call: str, parse: Parse) -> None:
    model = parse(
        f"g (float[2] x) => (float[2] y) {{ a = Relu(x) b = {call} y = Sigmoid(b) }}",
        {"ratio": np.array(0.5, np.float32), "off": np.array(False)},
    )
    model.graph.node(0).outputs[0].type = model.graph.inputs[0].type
    assert RemoveNoOps()(model).modified
    assert ops(model) == ["Relu", "Sigmoid"]
    assert [v and v.name for v in model.graph.node(1).inputs] == ["a"]
    assert not RemoveNoOps()(model).modified


def test_a_graph_output_keeps_its_name(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Relu(x) b = Identity(a) y = Dropout(b) }")
    RemoveNoOps()(model)
    assert ops(model) == ["Relu"]
    assert model.graph.node(0).outputs[0] is model.graph.outputs[0]
    assert model.graph.outputs[0].name == "y"


@pytest.mark.parametrize(
    "body",
    [
        "y = Identity(x) z = Relu(x)",
        "y = Identity(w) z = Relu(x)",
        "z = Relu(x) y = Identity(z)",
        "a, m = Dropout(x) y = Relu(a) z = Cast<to=1>(m)",
        "a = Dropout(x, r, on) y = Relu(a) z = Relu(x)",
        "a = Cast<to=11>(x) y = Cast<to=1>(a) z = Relu(x)",
    ],
    ids=["an input", "a weight", "two outputs", "mask", "training", "other type"],
)
def test_what_onnx_needs_stays(body: str, parse: Parse) -> None:
    model = parse(
        f"g (float[2] x) => (float[2] y, float[2] z) {{ {body} }}",
        {"w": np.ones(2, np.float32), "r": np.array(0.5, np.float32), "on": np.array(True)},
    )
    before = ops(model)
    RemoveNoOps()(model)
    assert ops(model) == before


def test_a_branch_that_returns_an_outer_value_keeps_its_identity(parse: Parse, run: Run) -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) { a = Relu(x)
        y = If(c) <then_branch = t () => (float[2] p) { p = Identity(a) },
                   else_branch = e () => (float[2] q) {
            r = Identity(a) s = Neg(r) q = Identity(s) }> }"""
    )
    assert RemoveNoOps()(model).modified
    assert ops(model) == ["Relu", "If", "Identity", "Neg"]
    x = np.array([-1, 2], np.float32)
    assert run(model, {"c": np.array(True), "x": x})[0].tolist() == [0, 2]
    assert run(model, {"c": np.array(False), "x": x})[0].tolist() == [0, -2]
