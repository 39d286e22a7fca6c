"""Bisection: what ONNX Runtime does not run in integers is found, named, and left in float."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq.checking import runnable as module
from onnxq.checking.runnable import runnable
from onnxq.checking.summary import Summary
from onnxq.checking.validation import RefusalError, Validation
from onnxq.errors import ModelError
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource, Verdict
from tests.examples import network

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.checking.findings import Execution
    from onnxq.core.arrays import Array
    from onnxq.operator import Float

NAMES = [f"n{i}" for i in range(64)]
VERDICT = Verdict(InputSource.UNSEEN, 1, 1, (), None, None, 1, 1, 1, 1)


class Machine:
    """Stands for ONNX Runtime: refuses models in which all of some set are quantized.

    Attributes:
        refused: such sets.
        runs: models that were run.
    """

    def __init__(self, *refused: set[str]) -> None:
        self.refused = refused
        self.runs = 0
        self.source = onnxq.prepare(network()).model
        self.quantized: dict[int, set[str]] = {}

    def make(self, floats: Mapping[str, Float]) -> tuple[list[str], QuantizedModel]:
        model = QuantizedModel.of(self.source.clone())
        self.quantized[id(model.graph)] = set(NAMES) - floats.keys()
        self.kept = [*getattr(self, "kept", []), model]  # ids are unique while they live
        return [name for name in NAMES if name not in floats], model

    def refusal(self, model: QuantizedModel, _feeds: Mapping[str, Array] | None) -> str:
        if id(model.graph) not in self.quantized:
            return ""  # the float model
        self.runs += 1
        now = self.quantized[id(model.graph)]
        return "no kernel" if any(each <= now for each in self.refused) else ""

    def try_out(
        self, model: QuantizedModel, _validation: Validation
    ) -> tuple[Verdict, Execution | None, dict[str, Array]]:
        if reason := self.refusal(model, None):
            raise RefusalError(ModelError(reason), None)
        return VERDICT, None, {}


def run(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Names that were left in float."""
    monkeypatch.setattr(module, "try_out", machine.try_out)
    monkeypatch.setattr(module, "refusal", machine.refusal)
    monkeypatch.setattr(module, "as_written", lambda model: model)  # graphs are known by their ids
    validation = Validation(machine.source, InputSource.UNSEEN, ())
    made = runnable(machine.make, lambda plan: plan, lambda _plan: Summary(()), validation)
    assert made.model.verdict is not None
    return made.model.verdict.left_in_float


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        ((), ()),
        (({"n7"},), ("n7",)),
        (({"n0"}, {"n63"}), ("n0", "n63")),
        (({"n3", "n50"},), ("n50",)),  # one of a pair: the later, cheaper one
        (({"n3", "n50"}, {"n3", "n20"}), ("n20", "n50")),
    ],
)
def test_each_node_to_blame_is_left_in_float(
    refused: tuple[set[str], ...], left: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(*refused)
    assert run(machine, monkeypatch) == left
    # per culprit: the whole, none of them, and log2(64) halves; the whole at the end
    assert machine.runs <= len(left) * (1 + 1 + 6) + 1


def test_what_no_decision_is_to_blame_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="does not run the quantized model: no kernel"):
        run(Machine(set()), monkeypatch)


def test_a_float_model_that_does_not_run_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine({"n7"})
    monkeypatch.setattr(machine, "refusal", lambda _model, _feeds: "op Foo is not registered")
    with pytest.raises(ModelError, match=r"the float model itself does not run.*--no-verdict"):
        run(machine, monkeypatch)
