from __future__ import annotations

import io

from rich.console import Console

from onnxq.checking.differences import Unit
from onnxq.checking.prediction import (
    DifferingPair,
    LayerPrediction,
    MachinePrediction,
    OutputPrediction,
    Prediction,
)
from onnxq.report.print_prediction import print_prediction

PAIRS = tuple(DifferingPair(c, 0, 9, 7 - c) for c in range(4))
CAUSE = LayerPrediction("conv1", "QLinearConv", 9, (1, 2), (2,), 7, 6, 900, PAIRS, 100, 5, 2)
RISKY = LayerPrediction("conv2", "QLinearConv", 3, (1,))
SAFE = LayerPrediction("conv0", "QLinearConv", 0, ())
LATE = LayerPrediction("mm", "MatMulInteger", None, ())


def text(
    *machines: MachinePrediction,
    batches: int = 2,
    behind: tuple[str, ...] = (),
    floats: dict[str, int] | None = None,
    width: int = 200,
) -> str:
    file = io.StringIO()
    found = Prediction(
        "0123456789abcdef",
        batches,
        machines,
        floats or {},
        behind,
        ("y",),
        decided=1234,
        near_ties=5,
    )
    print_prediction(Console(file=file, width=width), found)
    return file.getvalue()


def test_causes_come_with_their_weights_and_what_could_be_comes_after() -> None:
    outputs = (OutputPrediction("y", 10, 4, 3, Unit.LSB),)
    shown = text(MachinePrediction(("avx2", "avx512"), "saturates", (CAUSE, RISKY), outputs))
    assert "4 of 10" in shown
    assert "3 LSB" in shown
    assert "0: 0 9, 7; 1: 0 9, 6; 2: 0 9, 5 ..." in shown
    assert "where others can, on other samples" in shown
    assert "batches: 2; model 0123456789ab" in shown


def test_machines_that_agree_say_how_sure_that_is() -> None:
    outputs = (OutputPrediction("y", 10, 0, 0, Unit.LSB),)
    sure = MachinePrediction(("a",), "exact", (SAFE,), outputs)
    assert "exact, whatever the input" in text(sure)
    can = MachinePrediction(("a",), "wraps", (LATE,), outputs)
    assert "exact on the samples, can differ" in text(can)
    assert "not constant" in text(can)


def test_without_samples_the_weights_speak() -> None:
    shown = text(MachinePrediction(("a",), "wraps", (RISKY,), ()), batches=0)
    assert "where sums can differ" in shown
    assert "from the weights alone" in shown


def test_what_is_behind_floats_is_not_claimed() -> None:
    sure = MachinePrediction(("a",), "wraps", (SAFE,), ())
    shown = text(sure, floats={"Softmax": 2}, behind=("q1", "conv0"))
    assert "exact" not in shown
    assert "floats decide 1,234, of which 5 lie next to a tie" in " ".join(shown.split())
    assert "of 1,234 integers that they decide on these samples, 5 lie so near" in shown
    assert "their last bits may differ: 2 Softmax" in shown
    assert "2 node(s) have such integers: 'q1', 'conv0'" in shown
    assert "outputs computed from them: y" in shown
    shown = text(sure, floats={"MatMulNBits": 1})
    assert "exact, whatever the input" in shown
    assert "no integers are computed from them" in shown
    assert "differ by 3 % of the largest" in shown


def test_without_samples_floats_that_decide_integers_are_in_the_headline_too() -> None:
    sure = MachinePrediction(("a",), "wraps", (SAFE,), ())
    shown = text(sure, batches=0, floats={"Softmax": 2}, behind=("q1", "conv0"))
    assert "equal where integers are" in " ".join(shown.split())
    assert "2 node(s) have such integers" in " ".join(shown.split())
    assert "exact" not in shown


def test_a_float_model_has_nothing_that_could_be_exact() -> None:
    shown = text(MachinePrediction(("a",), "exact", (), ()), floats={"Conv": 2})
    assert "no products or sums of integers" in shown
    assert "whatever" not in shown


def test_floats_without_a_scale_differ_by_numbers() -> None:
    output = OutputPrediction("y", 10, 4, 7747089, Unit.ULP, 7.391, 16.92)
    assert "7.39 (numbers up to 16.9)" in text(MachinePrediction(("a",), "x", (CAUSE,), (output,)))


def test_names_are_whole_lines_where_the_output_is_no_terminal() -> None:
    name = "/".join(f"encoder.layers.{i}.attention" for i in range(8))
    long = LayerPrediction(name, "QLinearConv", 9, (1, 2), (2,), 7, 6, 900, PAIRS, 100, 5, 2)
    assert name in text(MachinePrediction(("a",), "saturates", (long,), ()), width=80)
