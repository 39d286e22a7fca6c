from __future__ import annotations

import io
import math

import pytest

from onnxq.checking.bench import Benchmark
from onnxq.checking.findings import (
    Execution,
    Fallback,
    Findings,
    OutputFinding,
    TensorFinding,
    Unmatched,
)
from onnxq.report import console
from onnxq.report.summary import NodeDecision, Summary

EXECUTION = Execution({"QLinearConv": 2}, {"Softmax": 1}, {}, (Fallback("c9", "Conv"),))
SUMMARY = Summary(
    (
        *tuple(NodeDecision(f"a[{i}]/b", "Softmax", False, "slow [red]") for i in range(6)),
        NodeDecision("conv", "Conv", True, "codes in, codes out"),
    )
)


def printed(function: object, *args: object) -> str:
    file = io.StringIO()
    assert callable(function)
    function(console.open_console(file), *args)
    return file.getvalue()


def test_inspection_shows_every_node_literally() -> None:
    text = printed(console.print_inspection, SUMMARY, ("the model is float16",))
    assert all(f"a[{i}]/b" in text for i in range(6))
    assert "slow [red]" in text  # no markup
    assert "note: the model is float16" in text
    assert text.splitlines()[-4].split() == ["total", "1", "6"] or "total" in text


def test_long_names_are_not_cut_or_broken_in_a_pipe() -> None:
    name = "/model/" + "layer/" * 15 + "Conv"
    text = printed(console.print_inspection, Summary((NodeDecision(name, "Conv", True, "x"),)), ())
    assert name in text


def test_quantization_groups_reasons_and_counts_the_rest() -> None:
    text = printed(console.print_quantization, SUMMARY, EXECUTION, (4000, 1000), ("clipped",))
    assert "a[0]/b, a[1]/b and 4 more" in text
    assert "size: 4.00 kB -> 1.00 kB (25%)" in text
    assert "note: clipped" in text
    assert "fell back to float: Conv 'c9'" in text


def test_findings_show_infinities_and_what_is_missing() -> None:
    findings = Findings(
        "a" * 64,
        "b" * 64,
        2,
        (TensorFinding("t", "uint8", 0.5, 10, math.inf, 1.0, 0.0, 0.25),),
        (OutputFinding("y", 10, 40.0, 0.999, 1.0, None, None),),
        (Unmatched("u", "no scale"),),
        EXECUTION,
    )
    text = printed(console.print_findings, findings)
    assert "inf" in text
    assert "25.000%" in text
    assert "no scale" in text
    assert "a" * 12 in text


def test_without_a_tensor_of_fixed_scale_there_is_no_table_of_tensors() -> None:
    output = OutputFinding("y", 10, 40.0, 0.999, 1.0, None, None)
    findings = Findings("a", "b", 2, (), (output,), (), EXECUTION)
    assert "saturated" not in printed(console.print_findings, findings)


def test_benchmark_shows_the_ratio_of_medians() -> None:
    benchmark = Benchmark(3.0, 1.5, 10, 4_000_000, 1_000_000, {"x": (1, 3)}, EXECUTION)
    text = printed(console.print_benchmark, benchmark)
    assert "2.00x" in text
    assert "4.00x" in text
    assert "10 interleaved pairs" in text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (3_210_000_000, "3.21 GB")]
)
def test_sizes_have_decimal_units(size: int, text: str) -> None:
    assert console.size_text(size) == text
