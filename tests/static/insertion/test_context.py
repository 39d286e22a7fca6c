from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import onnxq
from onnxq import catalog
from onnxq.graph.walk import node_name, walk
from tests.examples import images, network

if TYPE_CHECKING:
    import onnx_ir as ir
    import pytest

    from onnxq.operator import Float, Rule


def test_operators_are_asked_for_the_rule_of_a_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    prepared = onnxq.prepare(network(), None, "x86-vnni")
    nodes = [node for node, _ in walk(prepared.model.graph)]
    found = [catalog.find(node.op_type, node.domain) for node in nodes]
    for kind in {type(operator) for operator in found if operator is not None}:
        rule = kind.rule

        def counting(
            self: object, node: ir.Node, rule: object = rule
        ) -> Rule | Float:  # of the original's own class
            asked[node_name(node)] += 1
            return rule(self, node)  # type: ignore[operator,no-any-return]

        monkeypatch.setattr(kind, "rule", counting)
    made = onnxq.prepare(prepared.model, None, "x86-vnni")
    onnxq.plan(made, onnxq.calibrate(made, {"x": images(4)}))
    assert set(asked.values()) == {1}
    assert asked.keys() == {node_name(node) for node in nodes}
