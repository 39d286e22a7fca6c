from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxq.checking.summary import (
    Count,
    Group,
    NodeDecision,
    Summary,
    summarize_precisions,
)
from onnxq.observers import MinMaxObserver, NarrowRangeObserver
from onnxq.operator import Float, OperatorLimit, Precision
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.static.prepare import prepare
from tests.examples import network

SUMMARY = Summary(
    (
        NodeDecision("c", "Conv", True, OperatorLimit("integers in")),
        NodeDecision("s", "Softmax", False, OperatorLimit("slow")),
        NodeDecision("d", "Conv", False, OperatorLimit("rare")),
        NodeDecision("t", "Softmax", False, OperatorLimit("slow")),
    )
)


def test_counts_are_per_op_type() -> None:
    assert SUMMARY.counts == {"Conv": Count(1, 1), "Softmax": Count(0, 2)}


def test_groups_have_one_precision_and_reason_and_floats_come_last() -> None:
    nodes = (
        NodeDecision("c", "Conv", True, OperatorLimit("integers in"), precision=Precision.INT8),
        NodeDecision(
            "m", "MatMul", True, OperatorLimit("float out"), precision=Precision.INT8_FLOAT_OUTPUT
        ),
        NodeDecision(
            "g", "Gemm", True, OperatorLimit("float out"), precision=Precision.INT8_FLOAT_OUTPUT
        ),
        NodeDecision(
            "p", "MatMul", True, OperatorLimit("float out"), precision=Precision.INT8_FLOAT_OUTPUT
        ),
        NodeDecision("d", "Conv", True, OperatorLimit("8 bits"), precision=Precision.INT8),
        *(NodeDecision(f"s{i}", "Softmax", False, OperatorLimit("slow")) for i in range(4)),
    )
    assert Summary(nodes).groups == [
        Group(
            Precision.INT8_FLOAT_OUTPUT,
            OperatorLimit("float out"),
            {"MatMul": 2, "Gemm": 1},
            ("m", "p", "g"),
        ),
        Group(Precision.INT8, OperatorLimit("integers in"), {"Conv": 1}, ("c",)),
        Group(Precision.INT8, OperatorLimit("8 bits"), {"Conv": 1}, ("d",)),
        Group(Precision.FLOAT, OperatorLimit("slow"), {"Softmax": 4}, ("s0", "s1", "s2", "s3")),
    ]


def test_a_node_that_the_data_left_without_numbers_is_float_for_that_reason() -> None:
    prepared = prepare(network())
    decisions = {**prepared.decisions, "conv1": Float(OperatorLimit("never observed"))}
    summary = summarize_precisions(prepared.model, decisions, prepared.precisions, {})
    (found,) = (node for node in summary.nodes if node.name == "conv1")
    assert (found.precision, found.words) == (Precision.FLOAT, "never observed")


def test_every_node_of_the_model_is_in_the_summary() -> None:
    prepared = prepare(network())
    summary = summarize_precisions(prepared.model, prepared.decisions, prepared.precisions, {})
    assert [n.name for n in summary.nodes] == [node.name for node in prepared.model.graph]
    by_name = {n.name: n for n in summary.nodes}
    assert by_name["conv1"].in_integers
    assert not by_name["softmax"].in_integers
    assert by_name["softmax"].words


def test_nodes_between_16_bit_integers_count_as_float_and_what_moves_them_does_not() -> None:
    wide = QConfig(MinMaxObserver.with_args(dtype="uint16"), NarrowRangeObserver.with_args())
    prepared = prepare(network(), qconfig=QConfigMapping().set_global(wide))
    dtypes = {name: group.dtype for group in prepared.groups for name in group.members}
    summary = summarize_precisions(prepared.model, prepared.decisions, prepared.precisions, dtypes)
    by_name = {n.name: n for n in summary.nodes}
    assert not by_name["conv1"].in_integers
    assert by_name["conv1"].precision is Precision.FLOAT_BETWEEN_QDQ
    assert by_name["conv1"].words.endswith("ONNX Runtime has no kernel for uint16")
    moving = {n.op_type for n in summary.nodes if n.in_integers}
    assert moving <= {"MaxPool", "Reshape", "Flatten", "Transpose"}


@pytest.mark.parametrize(
    ("domain", "label"), [("", "Gelu"), ("com.microsoft", "com.microsoft.Gelu")]
)
def test_other_domains_are_named(domain: str, label: str) -> None:
    from onnxq.graph.walk import op_label

    assert op_label(ir.Node(domain, "Gelu", [])) == label
