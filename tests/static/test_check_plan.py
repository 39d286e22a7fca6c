from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.errors import CalibrationError
from onnxq.operator.rule import WeightSlot
from onnxq.pipeline import plan_dynamic
from onnxq.static.calibrate import calibrate
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.targets.bias_preserving import BiasPreservingRounding, InputMeans
from tests.examples import images, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.dynamic.dynamic_decision import QuantizeDynamic
    from onnxq.static.prepared import Prepared


@pytest.fixture(scope="module")
def made() -> tuple[Prepared, Plan]:
    prepared = prepare(network())
    return prepared, plan(prepared, calibrate(prepared, {"x": images(2)}))


def _with(plan: Plan, name: str, **changes: object) -> Plan:
    decision = plan.decisions[name]
    assert isinstance(decision, Quantize)
    rule = {k: v for k, v in changes.items() if k not in ("results", "folded_into")}
    other = {k: v for k, v in changes.items() if k not in rule}
    changed = replace(decision, rule=replace(decision.rule, **rule), **other)  # type: ignore[arg-type]  # wrong on purpose
    return replace(plan, decisions={**plan.decisions, name: changed})


def _with_sums(made: Plan) -> Plan:
    kept = {
        n: replace(w, bias_preserving=BiasPreservingRounding((1,))) for n, w in made.weights.items()
    }
    return replace(made, weights=kept)


def _with_means(made: Plan, count: int) -> Plan:
    inputs = InputMeans(1, (1.0,) * count, (0.0,) * count)
    conv = replace(
        made.weights["conv1"], bias_preserving=BiasPreservingRounding((2, 3, 1), inputs=inputs)
    )
    return replace(made, weights={**made.weights, "conv1": conv})


WRONG: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "no activation": (
        lambda p: _with(p, "conv1", activations=()),
        "'conv1': the plan reads no activation of it.",
    ),
    "a node that is not there": (
        lambda p: replace(p, decisions={**p.decisions, "conv9": p.decisions["conv1"]}),
        "'conv9': the model has no such node. Did you mean 'conv",
    ),
    "a node that is missing": (
        lambda p: replace(p, decisions={k: d for k, d in p.decisions.items() if k != "add"}),
        "'add': the plan has no such node",
    ),
    "a slot that is not there": (lambda p: _with(p, "conv1", activations=(7,)), "has 3 inputs"),
    "a slot below 0": (lambda p: _with(p, "conv1", activations=(-3,)), "has 3 inputs"),
    "a weight below 0": (lambda p: _with(p, "conv1", weight=WeightSlot(-2, 0)), "has 3 inputs"),
    "a bias below 0": (lambda p: _with(p, "conv1", bias=-1), "its bias is input -1"),
    "a slot twice": (lambda p: _with(p, "add", activations=(0, 0)), "the plan reads"),
    "no such output": (lambda p: _with(p, "conv1", outputs=(1,)), "it has 1 outputs"),
    "no such tensor": (lambda p: _with(p, "add", results=("s9",)), "has no tensor 's9'"),
    "no result behind what is folded": (
        lambda p: _with(p, "conv1", results=()),
        "'relu1': the plan takes it out, and writes no result in its place",
    ),
    "folded into nothing": (lambda p: _with(p, "relu1", folded_into="x"), "folded into 'x'"),
    "no scale": (lambda p: replace(p, tensors={}), "has no scale in the plan"),
    "no weight": (lambda p: replace(p, weights={}), "its weight has no entry"),
    "sums over other axes": (_with_sums, "keeps sums over axes \\(1,\\); products run over"),
    "means of other channels": (lambda p: _with_means(p, 5), "other channels than those"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_plan_that_does_not_fit_is_refused_with_the_node(
    name: str, made: tuple[Prepared, Plan]
) -> None:
    prepared, good = made
    change, message = WRONG[name]
    with pytest.raises(CalibrationError, match=f"plan does not fit the model: node .*{message}"):
        rewrite(prepared, change(good))


def test_a_dynamic_plan_that_does_not_fit_is_refused_with_the_node() -> None:
    model, good = plan_dynamic(network(), objective="size")
    name, decision = next(iter(good.quantized.items()))

    def refused(changed: QuantizeDynamic, message: str, node: str = name) -> None:
        bad = replace(good, decisions={**good.decisions, node: changed})
        with pytest.raises(CalibrationError, match=message):
            rewrite_dynamic(model, bad)

    weight = decision.weights[0]
    refused(replace(decision, weights=()), "its weights are inputs")
    refused(replace(decision, weights=(replace(weight, tensor="w9"),)), "its weight 'w9' is not")
    refused(replace(decision, weights=(replace(weight, perm=(0, 0)),)), "is no order of the")
    for axes, channels in (((0, 255), None), ((9, 9), None), ((1, 2, 3), (0, 99))):
        kept = BiasPreservingRounding(axes, channels)
        wrong = (replace(weight, bias_preserving=kept),)
        refused(replace(decision, weights=wrong), "other channels than those")
    refused(decision, "the model has no such node", "nowhere")
    refused(decision, "has no weights that could be stored", "softmax")
