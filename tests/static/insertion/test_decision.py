from __future__ import annotations

import json

import onnx_ir as ir
import pytest

from onnxq.core.saved import plain, read
from onnxq.graph.walk import bodies, walk
from onnxq.operator import Float, OpCategory, Rule, WeightSlot
from onnxq.operator.reasons import LeftByRequest
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.reasons import IntegerKernel, MovesIntegers, PartOf

NESTED = """<ir_version: 10, opset_import: ["" : 21]>
g (bool k, int64 n, float[2] x) => (float[2] y, float[2] z) {
    [before] a = Relu(x)
    [if] y = If(k) <then_branch = t () => (float[2] p) { [then] p = Neg(a) },
                    else_branch = e () => (float[2] q) { [else] q = Abs(a) }>
    [loop] z = Loop(n, k, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] r) {
        [same] d = Identity(c)
        [inner] r = If(c) <then_branch = u () => (float[2] v) { [deep] v = Neg(s) },
                           else_branch = w () => (float[2] o) { [deeper] o = Abs(s) }> }> }"""

RULE = Rule(OpCategory.COMPUTE, (0,), weight=WeightSlot(1, 0), bias=2)
DECISIONS = [
    Float(LeftByRequest()),
    Quantize(RULE, IntegerKernel("int8", 64, True), None, ("y",)),
    Quantize(Rule(OpCategory.CLAMP, (0,), clamp=(0.0, 6.0)), PartOf("Conv", "conv"), "conv", ()),
    Quantize(
        Rule(OpCategory.MOVEMENT, (0, 1), lowered=True, shares_qparams=True), MovesIntegers(), None
    ),
    Quantize(
        Rule(OpCategory.CLAMP, (0,), clamp=(0.0, float("inf"))), PartOf("Conv", "conv"), "conv", ()
    ),
]


@pytest.mark.parametrize("decision", DECISIONS, ids=["float", "conv", "clip", "concat", "relu"])
def test_a_decision_survives_json(decision: Decision) -> None:
    text = json.dumps(plain(decision), allow_nan=False)
    assert read(Quantize | Float, json.loads(text)) == decision


def test_bodies_come_before_the_node_that_holds_them() -> None:
    names = [node.name for node, _ in walk(ir.from_onnx_text(NESTED).graph)]
    assert names == ["before", "then", "else", "if", "same", "deep", "deeper", "inner", "loop"]


def test_only_what_is_in_a_loop_says_so() -> None:
    loops = {node.name: loop for node, loop in walk(ir.from_onnx_text(NESTED).graph)}
    inside = {name for name, loop in loops.items() if loop is not None}
    assert inside == {"same", "inner", "deep", "deeper"}
    assert loops["deep"] == "Loop 'loop'"  # through the If


def test_lists_of_graphs_are_found_too() -> None:
    graphs = [ir.Graph([], [], nodes=[], name=name) for name in "abc"]
    attributes = [ir.AttrGraph("one", graphs[0]), ir.AttrGraphs("more", graphs[1:])]
    node = ir.Node("local", "Choose", [], attributes)
    assert [graph.name for graph in bodies(node)] == ["a", "b", "c"]
