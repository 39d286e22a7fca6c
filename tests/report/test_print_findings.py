"""Findings of verify: the worst first and marked, the rest counted."""

from __future__ import annotations

import io
import math
from dataclasses import replace

from rich.console import Console

from onnxq.checking.findings import Execution, Findings, OutputFinding, TensorFinding, Unmatched
from onnxq.report.console import open_console
from onnxq.report.detail import Detail, showing
from onnxq.report.print_findings import print_findings

EXECUTION = Execution({"QLinearConv": 2}, {"Softmax": 1}, {}, ())
OUTPUT = OutputFinding("y", 10, 40.0, 0.999, 1.0, None, None)


def tensor(name: str, sqnr_db: float, lsb: float = 0.0) -> TensorFinding:
    return TensorFinding(name, "uint8", 0.5, 10, sqnr_db, 1.0, lsb, 0.25)


def printed(
    tensors: tuple[TensorFinding, ...], *bounds: float | None, unmatched: tuple[Unmatched, ...] = ()
) -> str:
    file = io.StringIO()
    findings = Findings("a" * 64, "b" * 64, 2, tensors, (OUTPUT,), unmatched, EXECUTION)
    print_findings(open_console(file), findings, *bounds)
    return file.getvalue()


def test_findings_show_infinities_and_what_is_missing() -> None:
    text = printed((tensor("t", math.inf),), unmatched=(Unmatched("u", "no scale"),))
    assert "inf" in text
    assert "25.000%" in text
    assert "no scale" in text
    assert "a" * 12 in text


def test_without_a_tensor_of_fixed_scale_there_is_no_table_of_tensors() -> None:
    assert "saturated" not in printed(())


def test_outputs_of_integers_show_how_many_are_equal() -> None:
    assert "equal" not in printed(())
    file = io.StringIO()
    classes = replace(OUTPUT, name="classes", agreement=0.75)
    findings = Findings("a" * 64, "b" * 64, 2, (), (OUTPUT, classes), (), EXECUTION)
    print_findings(open_console(file), findings)
    lines = file.getvalue().splitlines()
    assert lines[0].endswith("equal")
    assert [line.split()[-1] for line in lines[1:3]] == ["-", "75.00%"]


def test_the_worst_tensor_is_first_and_nan_is_worse() -> None:
    text = printed((tensor("good", 40.0), tensor("bad", 20.0), tensor("nan", math.nan)))
    assert text.index("nan ") < text.index("bad ") < text.index("good ")


def test_each_tensor_has_its_node_and_its_place_in_the_graph() -> None:
    tensors = (tensor("first", 20.0), replace(tensor("last", 10.0), node="conv_9"))
    text = printed(tensors, 30.0, None)
    assert [line.split()[1:4] for line in text.splitlines() if line.startswith("! ")][:2] == [
        ["last", "conv_9", "2"],
        ["first", "-", "1"],
    ]
    assert "the first in graph order is # 1, first\n" in text


def test_the_table_of_tensors_fits_80_columns() -> None:
    file = io.StringIO()
    name = "model.layers.12.attention.out"
    long = replace(tensor(name, 5.0, 1234.56), node="encoder/node_Conv_1234")
    findings = Findings("a" * 64, "b" * 64, 2, (long,), (OUTPUT,), (), EXECUTION)
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    print_findings(console, findings)
    assert max(map(len, file.getvalue().splitlines())) <= 80
    row = next(line for line in file.getvalue().splitlines() if line.startswith("! "))
    assert row.count("...") == 2


def test_twice_the_error_of_the_median_tensor_is_marked() -> None:
    text = printed((*(tensor(f"t{i}", 40.0) for i in range(5)), tensor("bad", 33.0)))
    assert "! bad " in text
    assert "! 1 of 6 tensors have less than 34.0 dB" in text
    assert "! t0" not in text


def test_with_bounds_what_breaks_them_is_marked_and_nothing_else() -> None:
    tensors = (tensor("low", 10.0), tensor("far", 40.0, 9.0))
    assert "! low" not in printed(tensors, 5.0, None)
    both = printed(tensors, 20.0, 8.0)
    assert "! low" in both
    assert "! far" in both
    assert "break a bound" in both


def test_rows_beyond_the_worst_are_counted_unless_all_are_to_be_shown() -> None:
    tensors = tuple(tensor(f"t{i}", float(100 - i)) for i in range(30))
    text = printed(tensors)
    assert "t29" in text
    assert "t0 " not in text
    assert "and 15 more, from 86.00 dB on; -v shows them" in text
    with showing(Detail.WHOLE):
        assert "t0 " in printed(tensors)
