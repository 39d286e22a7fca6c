from __future__ import annotations

import io

from rich.console import Console

from onnxq.report.prediction import print_prediction
from onnxq.stages.prediction import (
    LayerPrediction,
    MachinePrediction,
    OutputPrediction,
    Pair,
    Prediction,
)

PAIRS = tuple(Pair(c, 0, 9, 7 - c) for c in range(4))
CAUSE = LayerPrediction("conv1", "QLinearConv", 9, (1, 2), (2,), 7, 6, 900, PAIRS, 100, 5, 2)
RISKY = LayerPrediction("conv2", "QLinearConv", 3, (1,))
LATE = LayerPrediction("mm", "MatMulInteger", None, ())


def text(*machines: MachinePrediction, batches: int = 2) -> str:
    file = io.StringIO()
    found = Prediction("0123456789abcdef", batches, machines, {"Softmax": 2})
    print_prediction(Console(file=file, width=200), found)
    return file.getvalue()


def test_causes_come_with_their_weights_and_what_could_be_comes_after() -> None:
    outputs = (OutputPrediction("y", 10, 4, 3, "codes"),)
    shown = text(MachinePrediction(("avx2", "avx512"), "saturates", (CAUSE, RISKY), outputs))
    assert "4 of 10" in shown
    assert "3 codes" in shown
    assert "0: 0 9, 7; 1: 0 9, 6; 2: 0 9, 5 ..." in shown
    assert "where others can, on other samples" in shown
    assert "codes computed from them by a step: 2 Softmax" in shown
    assert "batches: 2; model 0123456789ab" in shown


def test_machines_that_agree_say_how_sure_that_is() -> None:
    outputs = (OutputPrediction("y", 10, 0, 0, "codes"),)
    assert "exact, whatever the input" in text(MachinePrediction(("a",), "exact", (), outputs))
    can = MachinePrediction(("a",), "wraps", (LATE,), outputs)
    assert "exact on the samples, can differ" in text(can)
    assert "not constant" in text(can)


def test_without_samples_the_weights_speak() -> None:
    shown = text(MachinePrediction(("a",), "wraps", (RISKY,), ()), batches=0)
    assert "where sums can differ" in shown
    assert "from the weights alone" in shown


def test_what_is_known_of_a_machine_and_not_predicted_is_said() -> None:
    assert "not predicted: x86-sse: " in text(MachinePrediction(("x86-sse",), "exact", (), ()))
    assert "not predicted" not in text(MachinePrediction(("arm64-dot",), "wraps", (), ()))
