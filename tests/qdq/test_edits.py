from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.dtypes import INT4, INT8
from onnxq.qdq.edits import (
    from_dequantize,
    granularity_attributes,
    graph_of,
    graphs_of,
    insert_behind,
)
from onnxq.qparams import PerBlock, PerChannel, QParams, per_tensor

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


def test_only_a_dequantize_linear_dequantizes(model: ir.Model) -> None:
    assert not from_dequantize(model.graph.inputs[1])
    assert not from_dequantize(model.graph.node(0).outputs[0])
    assert from_dequantize(ir.node("DequantizeLinear", list(model.graph.inputs)).outputs[0])


@pytest.mark.parametrize(
    ("qparams", "wanted"),
    [
        (per_tensor(1, 0, INT8), {}),
        (QParams(np.ones(3, "f"), np.zeros(3, np.int8), INT8, PerChannel(1)), {"axis": 1}),
        (
            QParams(np.ones((4, 3), "f"), np.zeros((4, 3), np.int8), INT4, PerBlock(0, 16)),
            {"axis": 0, "block_size": 16},
        ),
    ],
    ids=["tensor", "channel", "block"],
)
def test_attributes_are_those_of_the_granularity(qparams: QParams, wanted: dict[str, int]) -> None:
    assert granularity_attributes(qparams) == wanted
