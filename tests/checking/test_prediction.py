from __future__ import annotations

import json

import pytest

from onnxq import targets
from onnxq.checking.differences import Unit
from onnxq.checking.prediction import (
    DifferingPair,
    LayerPrediction,
    MachinePrediction,
    OutputPrediction,
    Prediction,
)
from onnxq.errors import DifferenceError, QConfigError

QUIET = LayerPrediction("quiet", "QGemm", 0, ())
RISKY = LayerPrediction("risky", "QLinearConv", 3, (1, 2))
CAUSE = LayerPrediction(
    "cause", "QLinearConv", 3, (1, 2), (2,), 7, 6, 900, (DifferingPair(2, 0, 9, 7),), 100, 5, 2
)


def machine(*layers: LayerPrediction, differing: int = 0) -> MachinePrediction:
    output = OutputPrediction("y", 10, differing, min(differing, 1), Unit.LSB)
    return MachinePrediction(("a", "b"), "saturates", layers, (output,))


def prediction(*machines: MachinePrediction, batches: int = 1) -> Prediction:
    return Prediction("hash", batches, machines, {})


def test_a_machine_without_risky_weights_is_exact_whatever_the_input() -> None:
    assert not machine(QUIET).may_differ
    prediction(machine(QUIET)).check()
    prediction(machine(QUIET), batches=0).check()


def test_risky_weights_count_where_there_are_no_samples() -> None:
    found = machine(QUIET, RISKY)
    assert found.risky_layers == (RISKY,)
    assert (found.differs, found.may_differ) == (False, True)
    prediction(found).check()
    with pytest.raises(DifferenceError, match=r"can differ on 2 target.*\n  a, b: 'risky'"):
        prediction(found, batches=0).check()


def test_weights_known_at_run_time_alone_are_risky() -> None:
    assert machine(LayerPrediction("late", "MatMulInteger", None, ())).may_differ


def test_a_difference_names_machines_and_causes() -> None:
    found = prediction(machine(CAUSE, RISKY, differing=3))
    assert found.differing == ("a", "b")
    with pytest.raises(DifferenceError, match=r"differ on 2 target.*\n  a, b: 'cause'\n  Quant"):
        found.check()


def test_a_target_is_found_by_its_name() -> None:
    found = MachinePrediction(("x86-avx2", "arm64"), "saturates", (), ())
    for name in ("arm64", "fbgemm", "qnnpack", targets.find("x86-avx2")):
        assert prediction(found).on(name) is found
    with pytest.raises(QConfigError, match=r"'arm64-dot' is not in this .*Did you mean 'arm64'"):
        prediction(found).on("arm64-dot")
    with pytest.raises(QConfigError, match=r"'avx2' is not known"):
        prediction(found).on("avx2")


def test_json_has_all_of_it() -> None:
    value = json.loads(prediction(machine(CAUSE, differing=3)).to_json())
    assert value["differing"] == value["may_differ"] == ["a", "b"]
    (layer,) = value["machines"][0]["layers"]
    assert layer["pairs"] == [{"channel": 2, "first": 0, "second": 9, "count": 7}]


def test_json_of_weights_alone_names_machines_that_can_differ() -> None:
    value = json.loads(prediction(machine(QUIET, RISKY), batches=0).to_json())
    assert (value["differing"], value["may_differ"]) == ([], ["a", "b"])
    assert json.loads(prediction(machine(QUIET)).to_json())["may_differ"] == []
