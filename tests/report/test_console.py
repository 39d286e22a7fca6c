from __future__ import annotations

import io

from onnxq.checking.bench import Benchmark
from onnxq.checking.findings import Execution, Fallback
from onnxq.checking.summary import NodeDecision, Summary
from onnxq.operator import OperatorLimit
from onnxq.report import console
from onnxq.report.detail import Detail, showing

EXECUTION = Execution({"QLinearConv": 2}, {"Softmax": 1}, {}, (Fallback("c9", "Conv"),))
SUMMARY = Summary(
    (
        *tuple(
            NodeDecision(f"a[{i}]/b", "Softmax", False, OperatorLimit("slow [red]"))
            for i in range(6)
        ),
        NodeDecision("conv", "Conv", True, OperatorLimit("integers in, integers out")),
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
    assert text.startswith("0 of 7 nodes compute in integers\n")


def test_long_names_are_not_cut_or_broken_in_a_pipe() -> None:
    name = "/model/" + "layer/" * 15 + "Conv"
    text = printed(
        console.print_inspection,
        Summary((NodeDecision(name, "Conv", True, OperatorLimit("x")),)),
        (),
    )
    assert name in text


def test_a_reason_is_said_once_and_nodes_have_its_number() -> None:
    lines = printed(console.print_inspection, SUMMARY, ()).splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("a[")] == ["1"] * 6
    assert sum("slow [red]" in line for line in lines) == 1


def test_the_nodes_that_are_shown_refer_to_reasons_that_are_shown() -> None:
    rare = NodeDecision("rare", "Resize", False, OperatorLimit("rare"))
    usual = (NodeDecision(f"n{i}", "Cast", False, OperatorLimit(f"{i % 5}")) for i in range(60))
    lines = printed(console.print_inspection, Summary((rare, *usual)), ()).splitlines()
    assert lines[-1] == "and 51 nodes, 1 reason more; -v shows them"
    assert not any(line.startswith("rare") for line in lines)


def test_an_inspection_of_many_nodes_shows_those_in_float_first_and_counts_the_rest() -> None:
    convs = (NodeDecision(f"c{i}", "Conv", True, OperatorLimit("x")) for i in range(1000))
    last = NodeDecision("s", "Softmax", False, OperatorLimit("slow"))
    lines = printed(console.print_inspection, Summary((*convs, last)), ()).splitlines()
    assert [line.split()[0] for line in lines if line.endswith(" 2")] == ["s"]
    assert lines[-1] == "and 991 nodes more; -v shows them"


def test_details_group_reasons_and_name_three_nodes() -> None:
    with showing(Detail.WHOLE):
        text = printed(console.print_details, SUMMARY, EXECUTION, ("clipped",))
    assert "a[0]/b, a[1]/b, a[2]/b and 3" in " ".join(text.split())
    assert "note: clipped" in text
    assert "fell back to float: 1 Conv between integers in the file" in " ".join(text.split())


def test_benchmark_shows_the_ratio_of_medians() -> None:
    benchmark = Benchmark(3.0, 1.5, 10, 4_000_000, 1_000_000, {"x": (1, 3)}, EXECUTION, (1.9, 2.1))
    text = printed(console.print_benchmark, benchmark)
    assert "2.00x" in text
    assert "4.00x" in text
    assert "10 interleaved pairs" in text
