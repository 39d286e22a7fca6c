from __future__ import annotations

import io
from dataclasses import replace

import pytest

from onnxq.checking.cross_findings import (
    CrossFindings,
    FloatNode,
    NodeFinding,
    NotCompared,
    OutputAgreement,
    UncheckedNode,
)
from onnxq.checking.differences import Unit
from onnxq.report.console import open_console
from onnxq.report.cross import print_cross_findings
from onnxq.report.detail import Detail, showing


def printed(findings: CrossFindings) -> str:
    out = io.StringIO()
    print_cross_findings(open_console(out), findings)
    return out.getvalue()


GOOD = NodeFinding("/a/[0]", "QLinearConv", "", "onnxq", 100, 0, 0, Unit.LSB, "")
BAD = NodeFinding("b", "QLinearAdd", "com.microsoft", "onnxq", 50, 3, 2, Unit.LSB, "")
ODD = NodeFinding("c", "QGemm", "com.microsoft", "onnxq", 5, 5, 0, Unit.LSB, "gives int8 (1,)")
FINDINGS = CrossFindings(
    "0123456789abcdef",
    4,
    (GOOD, BAD, ODD),
    (UncheckedNode("l", "DynamicQuantizeLSTM", "com.microsoft", NotCompared("no kernel for it")),),
    (FloatNode("s", "Softmax", ""), FloatNode("t", "Softmax", "")),
    ("z",),
    (OutputAgreement("y", 10, 1, 7, Unit.ULP, "", "Softmax 's'"),),
    "b",
    "",
)


def test_every_finding_is_printed() -> None:
    text = printed(FINDINGS)
    assert "equal in every integer, node by node: QLinearConv 1" in text
    assert "2 LSB" in text
    assert "gives int8 (1,)" in text
    assert "no kernel for it" in text
    assert "Softmax      2" in text
    assert "7 ulps" in text
    assert "output 'z' changes" in text
    assert "the integers part at node 'b'" in text
    assert "3 integer nodes, 155 elements: 8 differ" in text
    assert "1 integer nodes were not checked" in text
    assert "end to end, 10 elements: 1 differ" in text
    assert "in front of output 'y', in float: Softmax 's'" in text
    assert "batches: 4; model 0123456789ab" in text


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("x86-avx2", "7 sums saturate on x86-avx2, this machine; the reference computes likewise."),
        ("arm64", "7 sums wrap or round otherwise on arm64"),
        ("x86-sse", "7 sums round otherwise on x86-sse"),
    ],
)
def test_sums_that_this_machine_changes_are_counted(machine: str, words: str) -> None:
    node = replace(GOOD, overflows=7)
    findings = CrossFindings("h", 1, (node,), (), (), (), (), "", "", machine=machine)
    assert words in " ".join(printed(findings).split())
    assert "sums" not in printed(replace(findings, nodes=(GOOD,)))


def test_nodes_that_differ_are_first_and_marked_and_all_are_there_if_asked_for() -> None:
    text = printed(FINDINGS)
    assert text.index("! c ") < text.index("! b ")
    assert "/a/[0]" not in text
    with showing(Detail.WHOLE):
        assert "  /a/[0]" in printed(FINDINGS)  # no markup


def test_what_is_empty_is_left_out() -> None:
    text = printed(CrossFindings("h", 1, (GOOD,), (), (), (), (), "", "no Frob"))
    assert "not checked end to end: no Frob" in text
    assert "end to end: not checked" in text
    assert "part at" not in text
    assert "floats" not in text


def test_a_model_without_integers_does_not_look_like_success() -> None:
    text = printed(CrossFindings("h", 1, (), (), (), (), (), "", ""))
    assert "no integers were compared: ONNX Runtime runs no node in integers" in text
    assert "node by node" not in text


def test_weights_alone_and_rounding_are_called_so() -> None:
    rounded = OutputAgreement("y", 10, 1, 7, Unit.ULP, "", "Gemm 'g'", 16)
    text = printed(CrossFindings("h", 1, (), (), (), (), (rounded,), "", "", weights_alone=True))
    assert "no node computes in integers: at most weights are stored" in text
    assert "7 ulps  rounding" in text
    assert "end to end, 10 elements: 1 differ, by rounding" in text
    assert "no integers were compared" not in text
