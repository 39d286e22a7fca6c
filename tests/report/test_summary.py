from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxq.report.summary import Count, NodeDecision, Reason, Summary, summarize
from onnxq.static.prepare import prepare
from tests.examples import network

SUMMARY = Summary(
    (
        NodeDecision("c", "Conv", True, "codes in"),
        NodeDecision("s", "Softmax", False, "slow"),
        NodeDecision("d", "Conv", False, "rare"),
        NodeDecision("t", "Softmax", False, "slow"),
    )
)


def test_counts_are_per_op_type() -> None:
    assert SUMMARY.counts == {"Conv": Count(1, 1), "Softmax": Count(0, 2)}


def test_reasons_are_grouped_with_the_most_frequent_first() -> None:
    assert SUMMARY.reasons == [
        Reason("Softmax", "slow", ("s", "t")),
        Reason("Conv", "rare", ("d",)),
    ]


def test_every_node_of_the_model_is_in_the_summary() -> None:
    prepared = prepare(network())
    summary = summarize(prepared.model, prepared.decisions)
    assert [n.name for n in summary.nodes] == [node.name for node in prepared.model.graph]
    by_name = {n.name: n for n in summary.nodes}
    assert by_name["conv1"].in_integers
    assert not by_name["softmax"].in_integers
    assert by_name["softmax"].words


@pytest.mark.parametrize(
    ("domain", "label"), [("", "Gelu"), ("com.microsoft", "com.microsoft.Gelu")]
)
def test_other_domains_are_named(domain: str, label: str) -> None:
    from onnxq.report.summary import op_label

    assert op_label(ir.Node(domain, "Gelu", [])) == label
