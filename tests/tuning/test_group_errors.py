from __future__ import annotations

from onnx import helper

from onnxq.tuning.group_errors import results_of
from onnxq.tuning.node_group import NodeGroup
from onnxq.tuning.subject import Subject
from tests.examples import model


def test_results_of_a_group_stand_in_graph_order_without_those_that_it_keeps() -> None:
    count = 12
    nodes = [helper.make_node("Relu", ["x"], ["inside"], name="first")]
    nodes += [
        helper.make_node("Sigmoid", ["inside"], [f"y{i}"], name=f"branch{i}") for i in range(count)
    ]
    nodes.append(helper.make_node("Sum", [f"y{i}" for i in range(count)], ["y"], name="last"))
    found = Subject.of(model(nodes, {}, {"x": ["N", 4]})).canonical.model
    group = NodeGroup("branches", ("first", *(f"branch{i}" for i in range(count))))
    assert results_of(found, group) == [f"y{i}" for i in range(count)]
