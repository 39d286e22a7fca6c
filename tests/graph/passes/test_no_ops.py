from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.no_ops import RemoveNoOps, casts
from onnxq.ort import runtime

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
        "Pow(a, one)",
        "Dropout(a, ratio, off)",
        "Transpose<perm = [0]>(a)",
    ],
)
def test_a_node_that_returns_its_input_is_taken_out(call: str, parse: Parse) -> None:
    model = parse(
        f"g (float[2] x) => (float[2] y) {{ a = Relu(x) b = {call} y = Sigmoid(b) }}",
        {**CONSTANTS, "ratio": np.array(0.5, np.float32), "off": np.array(False)},
    )
    model.graph.node(0).outputs[0].type = model.graph.inputs[0].type
    assert RemoveNoOps()(model).modified
    assert ops(model) == ["Relu", "Sigmoid"]
    assert [v and v.name for v in model.graph.node(1).inputs] == ["a"]
    assert not RemoveNoOps()(model).modified


CONSTANTS = {
    "zero": np.zeros((), np.float32),
    "minus_zero": np.array([-0.0], np.float32),
    "one": np.ones((), np.float32),
    "ones": np.ones((1, 1), np.float32),
    "whole": np.zeros(2, np.int64),
    "end": np.full(2, 2**63 - 1),
    "end0": np.array([2**63 - 1]),
    "first": np.array([0]),
    "unit": np.array([1]),
    "sizes": np.array([2, 1]),
    "rows": np.array([3, 1]),
    "more": np.array([1, 1, 1]),
    "zeros": np.zeros(4, np.float32),
    "deep": np.zeros((1, 1, 1), np.float32),
    "two": np.full((), 2, np.float32),
    "back": np.array([-1]),
}


@pytest.mark.parametrize(
    ("call", "goes"),
    [
        ("Add(a, zero)", True),
        ("Add(zero, a)", True),
        ("Add(a, minus_zero)", True),
        ("Sub(a, zero)", True),
        ("Mul(a, one)", True),
        ("Mul(ones, a)", True),
        ("Div(a, ones)", True),
        ("Expand(a, unit)", True),
        ("Expand(a, sizes)", True),
        ("Slice(a, whole, end)", True),
        ("Slice(a, first, end0, first)", True),
        ("Slice(a, first, end0, first, unit)", True),
        ("Add(a, one)", False),
        ("Add(a, zeros)", False),
        ("Add(a, deep)", False),
        ("Sub(zero, a)", False),
        ("Div(one, a)", False),
        ("Pow(one, a)", False),
        ("Mul(a, two)", False),
        ("Expand(a, rows)", False),
        ("Expand(a, more)", False),
        ("Slice(a, unit, end0)", False),
        ("Slice(a, first, unit)", False),
        ("Slice(a, first, end0, first, back)", False),
    ],
)
def test_what_changes_nothing_goes_where_onnx_runtime_takes_it_out(
    call: str, goes: bool, parse: Parse
) -> None:
    used = {name: array for name, array in CONSTANTS.items() if name in re.findall(r"\w+", call)}
    size = 1 if "rows" in call else 2
    model = parse(
        f"g (float[{size},4] x) => (y) {{ a = Tanh(x) b = {call} y = Sigmoid(b) }}", used, opset=17
    )
    model.graph.node(0).outputs[0].shape = model.graph.inputs[0].shape
    theirs = [node.op_type for node in runtime.optimized_graph(model).graph]
    assert RemoveNoOps()(model).modified == goes
    assert tuple(ops(model)) == ("Tanh", "Sigmoid") if goes else len(ops(model)) == 3
    assert len(theirs) == len(ops(model))
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


@pytest.mark.parametrize(
    ("sizes", "goes"),
    [
        ("[N,4,5]", {"same": True, "open": True, "copied": True, "other": False, "known": False}),
        ("[2,4,5]", {"same": True, "open": True, "copied": True, "other": False, "known": True}),
        ("[N,4,M]", {"same": False, "open": True, "copied": True, "other": False}),
        ("[N,M,5]", {"same": False, "twice": True, "other": False}),
    ],
)
def test_a_reshape_goes_where_it_surely_keeps_all_sizes(
    sizes: str, goes: dict[str, bool], parse: Parse
) -> None:
    targets = {
        "same": [-1, 4, 5], "open": [0, 4, -1], "copied": [0, 0, 0], "other": [-1, 5, 4],
        "known": [2, 4, 5], "twice": [0, 0, -1],
    }  # fmt: skip
    for name, wanted in goes.items():
        model = parse(
            f"g (float{sizes} x) => (y) {{ a = Tanh(x) b = Reshape(a, s) y = Sigmoid(b) }}",
            {"s": np.array(targets[name])},
        )
        model.graph.node(0).outputs[0].shape = model.graph.inputs[0].shape
        assert RemoveNoOps()(model).modified == wanted, name


def test_a_reshape_to_the_shape_that_a_tensor_has_goes(parse: Parse) -> None:
    model = parse(
        "g (float[N,M] x) => (y) { a = Tanh(x) s = Shape(a) b = Reshape(a, s) y = Sigmoid(b) }"
    )
    model.graph.node(0).outputs[0].shape = model.graph.inputs[0].shape
    assert RemoveNoOps()(model).modified
    assert ops(model) == ["Tanh", "Shape", "Sigmoid"]


def test_casts_are_those_of_the_main_graph_in_order(parse: Parse) -> None:
    body = """g (float[2] x) => (float16[2] z) {
        a = Cast<to=1>(x)  y = Relu(a)  z = Cast<to=10>(y) }"""
    assert [node.outputs[0].name for node in casts(parse(body))] == ["a", "z"]
    like = "g (float[2] x, float16[2] t) => (float16[2] z) { y = Relu(x)  z = CastLike(y, t) }"
    assert [node.outputs[0].name for node in casts(parse(like))] == ["z"]
