from __future__ import annotations

import shlex

from onnxq.operator import Precision
from onnxq.survey.file_precisions import ShownPrecision, planned
from onnxq.survey.survey import surveyed_graph
from tests.survey.pair import pair


def test_inputs_nodes_and_outputs_are_joined_by_edges() -> None:
    made = pair()
    graph = surveyed_graph(made.sides().source, planned(made.plan), {})
    first, last = graph.nodes[0], graph.nodes[-1]
    assert (first.name, first.op_type, last.op_type) == ("x", "input", "output")
    read = {reader for _, reader in graph.edges}
    assert read == set(range(1, len(graph.nodes)))
    assert graph.makers["x"] == 0


def test_the_option_that_reverts_a_node_can_be_pasted_into_a_shell() -> None:
    made = pair()
    source = made.sides().source
    name = str(next(iter(source.graph)).name)
    choices = dict.fromkeys(planned(made.plan), ShownPrecision(Precision.FLOAT, "x"))
    choices[name] = ShownPrecision(Precision.INT8, "x")
    nodes = {node.name: node for node in surveyed_graph(source, choices, {}).nodes}
    assert shlex.split(nodes[name].revert) == ["--exclude", name]
    assert sum(bool(node.revert) for node in nodes.values()) == 1
