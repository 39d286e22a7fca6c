"""Rounding of each layer, or bias correction, within counted work."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import onnxq
from onnxq.errors import ModelError
from onnxq.graph.weights import constant_array
from onnxq.quantized.outcome import Outcome
from onnxq.samples import open_samples
from onnxq.samples.excerpt import HANDFUL
from onnxq.weights import Auto, Bias, Improved, Round, Smooth
from onnxq.weights import auto as module
from onnxq.weights.judgement import ENOUGH_SAMPLES, LOOKED_AT, enough_of, thinned
from onnxq.weights.layerwise import with_outcomes
from onnxq.weights.round import LITTLE, TOO_LARGE
from tests.dynamic_models import parsed
from tests.examples import ALL_INTEGERS

if TYPE_CHECKING:
    import onnx

    from onnxq.samples import Batches
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

WIDTH = 16


def layers() -> onnx.ModelProto:
    """Two linear layers with biases."""
    rng = np.random.default_rng(1)
    w, v = ((rng.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32) for _ in range(2))
    b = rng.standard_normal(WIDTH).astype(np.float32)
    text = f"""m (float[N,{WIDTH}] x) => (float[N,{WIDTH}] y) {{
        a = Gemm(x, w, b) c = Relu(a) y = Gemm(c, v, b) }}"""
    return parsed(text, {"w": w, "v": v, "b": b})


def samples(seed: int = 0, rows: int = 512) -> dict[str, np.ndarray]:
    mixed = np.random.default_rng(9).standard_normal((WIDTH, WIDTH))
    x = np.random.default_rng(seed).standard_normal((rows, WIDTH)) @ mixed
    return {"x": x.astype(np.float32)}


def planned(times: float = 1.0) -> tuple[Prepared, Plan, onnxq.Samples]:
    prepared = onnxq.prepare(layers(), ALL_INTEGERS, target="x86-vnni")
    read = onnxq.Samples({"x": np.float32(times) * samples()["x"]}, batch_size=64)
    return prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, read)), read


def test_each_layer_is_rounded_where_the_work_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_DB", -math.inf)
    prepared, plan, read = planned()
    batches = open_samples(read, prepared.inputs)
    some = thinned(batches, enough_of(512))
    auto = Auto().improve(prepared, plan, batches).outcomes
    alone = Round().improve(prepared, plan, some).outcomes
    assert [o.gain_db for o in auto[:2]] == [o.gain_db for o in alone[:2]]
    assert any(o.kept for o in auto)


def test_a_layer_whose_rounding_adds_next_to_no_noise_is_not_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared, plan, read = planned()
    batches = open_samples(read, prepared.inputs)
    monkeypatch.setattr(module, "LEAST_DB", 100.0)
    made = Auto().improve(prepared, plan, batches)
    assert [o.why for o in made.outcomes[:2]] == [LITTLE.format(100.0)] * 2
    assert any(o.kept for o in made.outcomes)
    stayed = []
    for name in plan.weights:
        slots = zip(constants(prepared, name), constants(made.prepared, name), strict=True)
        stayed.append([bool((old == new).all()) for old, new in slots])
    assert all(weight for weight, _ in stayed)
    assert not all(bias for _, bias in stayed)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("algorithm", [Auto(), Round(), Bias(), Smooth()])
@pytest.mark.parametrize("times", [1e20, 1e30, 1e36])
def test_numbers_whose_squares_leave_float32_are_no_error(
    algorithm: Auto | Round | Bias | Smooth, times: float
) -> None:
    prepared, plan, read = planned(times)
    batches = open_samples(read, prepared.inputs)
    if isinstance(algorithm, Smooth):
        assert algorithm.improve(prepared, batches).outcomes
        return
    outcomes = algorithm.improve(prepared, plan, batches).outcomes
    said = TOO_LARGE in {outcome.why for outcome in outcomes}
    assert said == (not isinstance(algorithm, Bias))


def constants(prepared: Prepared, name: str) -> list[np.ndarray]:
    """Weight and bias of the node."""
    (node,) = (n for n in prepared.model.graph if n.name == name)
    return [constant_array(value) for value in node.inputs[1:] if value is not None]


def test_beyond_the_work_allowed_biases_alone_are_corrected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared, plan, read = planned()
    monkeypatch.setattr(module, "LEAST", 0.0)
    monkeypatch.setattr(module, "SHARE", 0.0)
    made = Auto().improve(prepared, plan, open_samples(read, prepared.inputs))
    assert [o.algorithm for o in made.outcomes] == ["auto"] * len(made.outcomes)
    assert all("its bias alone is corrected" in o.why for o in made.outcomes if o.place)
    weights = {name: each.qparams for name, each in plan.weights.items()}
    assert {name: each.qparams for name, each in made.plan.weights.items()} == weights


def test_the_work_that_a_layer_leaves_over_is_there_for_those_behind() -> None:
    budget = module._Budget(looked_at=2.0, left=0.0)
    assert budget.allows(run=100, wanted=100)
    assert budget.allows(run=0, wanted=700)
    assert not budget.allows(run=0, wanted=1)


def test_a_part_of_the_samples_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def layerwise(prepared: Prepared, plan: Plan, samples: Batches, *_: object) -> Improved:
        seen.append(sum(len(batch["x"]) for batch in samples))
        return with_outcomes(Improved(prepared, plan), (Outcome("auto", "", True),))

    monkeypatch.setattr(module, "layerwise", layerwise)
    prepared, plan, _ = planned()
    for rows in (32, 192, 256, 1024):
        read = onnxq.Samples(samples(rows=rows), batch_size=8)
        Auto().improve(prepared, plan, open_samples(read, prepared.inputs))
    assert seen == [32, ENOUGH_SAMPLES, ENOUGH_SAMPLES, 1024 // LOOKED_AT]


def test_what_fails_or_loses_leaves_the_plan_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, plan, read = planned()
    batches = open_samples(read, prepared.inputs)

    def refused(*_: object) -> Improved:
        raise ModelError("no kernel for it")

    monkeypatch.setattr(module, "layerwise", refused)
    made = Auto().improve(prepared, plan, batches)
    assert made.prepared.model is prepared.model
    assert [o.why for o in made.outcomes] == ["no kernel for it"]

    def losing(*_: object) -> Improved:
        lost = Outcome("auto", "", True, 30.0, 29.9, "chance")
        return with_outcomes(Improved(prepared, replace(plan, weights={})), (lost,))

    monkeypatch.setattr(module, "layerwise", losing)
    made = Auto().improve(prepared, plan, batches)
    assert made.plan.weights == plan.weights
    assert not made.outcomes[-1].kept


def test_quantize_knows_its_name() -> None:
    asked = ALL_INTEGERS.set_improve(["auto"])
    made = onnxq.quantize(layers(), samples(), qconfig=asked, target="x86-vnni")
    assert made.verdict is not None
    assert any("PTQ algorithm 'auto'" in note for note in made.verdict.notes)


@pytest.mark.usefixtures("improved_here")
def test_quantize_improves_by_default_unless_told_otherwise() -> None:
    target = "portable"
    asked = ALL_INTEGERS.set_improve(())
    files = []
    for qconfig in (ALL_INTEGERS, ALL_INTEGERS.set_improve(["auto"]), asked):
        made = onnxq.quantize(layers(), samples(rows=256), qconfig=qconfig, target=target)
        files.append(made.to_bytes())
        verdict = made.verdict
        assert verdict is not None
        is_none = qconfig is asked
        source = "calibration samples" if is_none else "samples that no algorithm fitted"
        assert verdict.input_source.value == source
        assert is_none != any("PTQ algorithm 'auto'" in n for n in verdict.notes)
    assert files[0] == files[1]


@pytest.mark.usefixtures("improved_here")
@pytest.mark.parametrize("given", ["few", "once", "statistics"])
def test_no_algorithm_is_tried_without_samples_to_judge_by(given: str) -> None:
    few = samples(rows=HANDFUL - 1)
    prepared = onnxq.prepare(layers(), ALL_INTEGERS, target="portable")
    source: Any = {
        "few": few,
        "once": iter([{"x": row[None]} for row in samples(rows=16)["x"]]),
        "statistics": onnxq.calibrate(prepared, few),
    }[given]
    made = onnxq.quantize(layers(), source, qconfig=ALL_INTEGERS, target="portable")
    assert made.verdict is not None
    assert any("PTQ algorithm 'auto': not tried" in note for note in made.verdict.notes)
