"""Each node of each model refused in turn: the result is right, and says which node stays float."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.checking import runnable as recovery
from onnxq.checking import with_verdict
from onnxq.checking.validation import RefusalError, refusal
from onnxq.checking.validation_run import try_out
from onnxq.static.insertion.decision import Quantize
from tests.examples import ALL_INTEGERS, images, network, weights
from tests.examples import model as example
from tests.golden_models import BODIES, CONSTANTS, conv_model, data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.static.plan import Plan

REFUSAL = "the test refuses it"
BY_DAY = ("residual", "upsampling")
NAMES = [
    *(pytest.param(n, marks=() if n in BY_DAY else pytest.mark.nightly) for n in BODIES),
    pytest.param("network", marks=pytest.mark.nightly),
    "upsampling",
]


def upsampling() -> ir.Model:
    """Two convolutions large enough to be faster in integers, between them a Relu and a Resize."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Resize", ["r", "", "s"], ["b"], "larger"),
        helper.make_node("Conv", ["b", "v"], ["y"], "second", pads=[1, 1, 1, 1]),
    ]
    constants = {
        "w": weights(1, 16, 3, 3, 3),
        "v": weights(2, 4, 16, 3, 3),
        "s": np.array([1, 1, 2, 2], np.float32),
    }
    return ir.from_proto(example(nodes, constants, {"x": [1, 3, 24, 24]}))


def case(name: str) -> tuple[ir.Model, Any]:
    if name == "network":
        return ir.from_proto(network()), {"x": images(8)}
    if name == "upsampling":
        return upsampling(), {"x": weights(5, 8, 3, 24, 24)}
    return conv_model(BODIES[name], constants=CONSTANTS), data()


class Injector:
    """ONNX Runtime that refuses every model in which one of the named nodes is quantized."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: set[str]) -> None:
        self.refused = refused
        self.plans: dict[int, tuple[QuantizedModel, Plan]] = {}
        true_runnable, true_refusal, true_try_out = recovery.runnable, refusal, try_out

        def runnable(make: Any, *rest: Any) -> Any:
            def noted(floats: Mapping[str, Any]) -> Any:
                plan, model = make(floats)
                self.plans[id(model)] = (model, plan)
                return plan, model

            return true_runnable(noted, *rest)

        def refuse(model: Any, feeds: Any) -> Any:
            return REFUSAL if self.refuses(model) else true_refusal(model, feeds)

        def tried(model: Any, validation: Any) -> Any:
            if self.refuses(model):
                raise RefusalError(RuntimeError(REFUSAL), None)
            return true_try_out(model, validation)

        monkeypatch.setattr(with_verdict, "runnable", runnable)
        monkeypatch.setattr(recovery, "refusal", refuse)
        monkeypatch.setattr(recovery, "try_out", tried)

    def refuses(self, model: object) -> bool:
        if id(model) not in self.plans:
            return False  # the float model
        plan = self.plans[id(model)][1]
        return any(isinstance(plan.decisions[name], Quantize) for name in self.refused)


CHOICES = {"all integers": ALL_INTEGERS, "default": None}


def quantized_nodes(model: ir.Model, samples: Any, qconfig: Any) -> Sequence[str]:
    prepared = onnxq.prepare(model, qconfig)
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    return [name for name, decision in plan.decisions.items() if isinstance(decision, Quantize)]


@pytest.mark.filterwarnings("ignore:nothing is quantized")  # of one node, which is refused
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", NAMES)
def test_a_refused_node_stays_in_float_and_the_model_is_right(
    name: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, samples = case(name)
    nodes = quantized_nodes(model, samples, CHOICES[choice])
    assert nodes or choice == "default"
    for node in nodes:
        with monkeypatch.context() as patch:
            injector = Injector(patch, {node})
            made = onnxq.quantize(model, samples, qconfig=CHOICES[choice])
            assert not injector.refuses(made)
        assert made.verdict is not None
        assert made.verdict.left_in_float
        for output in made.verdict.outputs:
            assert output.sqnr_db is None or output.sqnr_db > 10
