from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.edit import (
    FreeNames,
    all_nodes,
    all_values,
    bypass,
    forget_unread,
    graph_of,
    graphs_of,
    insert_behind,
    merge_equal,
    new_constant,
    sole_reader,
)

if TYPE_CHECKING:
    from tests.graph.conftest import Parse


TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (bool k, float[2] x) => (float[2] y) {
    a = Relu(x)
    y = If(k) <then_branch = t () => (float[2] p) { p = Neg(a) },
               else_branch = e () => (float[2] q) { q = Abs(a) }> }"""


@pytest.fixture
def model() -> ir.Model:
    return ir.from_onnx_text(TEXT)


def ops(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


def test_a_node_stands_right_behind_the_producer(model: ir.Model) -> None:
    a = model.graph.node(0).outputs[0]
    insert_behind(a, ir.node("Exp", [a]), model.graph)
    assert ops(model.graph) == ["Relu", "Exp", "If"]


def test_a_node_on_an_input_stands_first(model: ir.Model) -> None:
    x = model.graph.inputs[1]
    insert_behind(x, ir.node("Exp", [x]), model.graph)
    assert ops(model.graph) == ["Exp", "Relu", "If"]


def test_a_node_on_a_value_of_the_outer_graph_stands_first_in_the_branch(model: ir.Model) -> None:
    a = model.graph.node(0).outputs[0]
    branch = model.graph.node(1).attributes["then_branch"].as_graph()
    insert_behind(a, ir.node("Exp", [a]), branch)
    assert ops(branch) == ["Exp", "Neg"]


def test_an_empty_graph_takes_the_node() -> None:
    graph = ir.Graph([x := ir.val("x", ir.DataType.FLOAT, [2])], [x], nodes=[])
    insert_behind(x, ir.node("Exp", [x]), graph)
    assert ops(graph) == ["Exp"]


def test_every_graph_is_listed_once_the_main_one_first(model: ir.Model) -> None:
    nodes = [*reversed(list(model.graph.all_nodes())), *model.graph]
    graphs = graphs_of(model, nodes)
    assert graphs[0] is model.graph
    assert [graph.name for graph in graphs] == ["g", "e", "t"]
    assert graph_of(model.graph.node(0)) is model.graph


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


def test_of_equal_nodes_the_first_is_left_and_what_gives_an_output(parse: Parse) -> None:
    model = parse(
        """g (float[2] x) => (float[2] y, float[2] z)
        { a = Relu(x) b = Relu(x) c = Neg(a) d = Neg(b) y = Add(c, d) z = Relu(x) }"""
    )
    assert merge_equal(model.graph, lambda node: (node.op_type, *node.inputs))
    assert [node.op_type for node in model.graph] == ["Relu", "Neg", "Add", "Relu"]
    assert len(set(model.graph.node(2).inputs)) == 1
    assert not merge_equal(model.graph, lambda _: None)


def test_a_value_that_two_bodies_read_has_no_sole_reader(model: ir.Model) -> None:
    assert sole_reader(model.graph.node(0).outputs[0]) is None


def test_a_graph_output_has_no_sole_reader(model: ir.Model) -> None:
    y = model.graph.outputs[0]
    model.graph.append(ir.node("Exp", [y]))
    assert sole_reader(y) is None


def test_a_sole_reader_reads_once(model: ir.Model) -> None:
    x = model.graph.inputs[1]
    assert sole_reader(x) is model.graph.node(0)
    model.graph.append(ir.node("Add", [x, x]))
    assert sole_reader(x) is None


def test_an_initializer_is_forgotten_once_nothing_reads_it(model: ir.Model) -> None:
    relu = model.graph.node(0)
    constant = new_constant(relu, "c", np.zeros(2, np.float32))
    relu.replace_input_with(0, constant)
    forget_unread(constant)
    assert list(model.graph.initializers) == ["c"]
    relu.replace_input_with(0, model.graph.inputs[1])
    forget_unread(constant)
    assert not model.graph.initializers


def test_an_initializer_that_a_caller_may_override_stays(model: ir.Model) -> None:
    constant = new_constant(model.graph.node(0), "c", np.zeros(2, np.float32))
    model.graph.inputs.append(constant)
    forget_unread(constant)
    assert list(model.graph.initializers) == ["c"]
