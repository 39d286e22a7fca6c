"""The better of rounding and bias correction for each layer, within a budget."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.weights import Auto, Bias, Round
from onnxq.weights import auto as module
from tests.dynamic_models import parsed
from tests.examples import ALL_INTEGERS

if TYPE_CHECKING:
    import onnx

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


def planned() -> tuple[Prepared, Plan, onnxq.Samples]:
    prepared = onnxq.prepare(layers(), ALL_INTEGERS, target="x86-vnni")
    read = onnxq.Samples(samples(), batch_size=64)
    return prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, read)), read


def test_each_layer_has_the_better_of_the_two() -> None:
    from onnxq.samples import open_samples

    prepared, plan, read = planned()
    batches = open_samples(read, prepared.inputs)
    gains = {
        each.name: {o.place: o.gain_db or 0 for o in each.improve(prepared, plan, batches).outcomes}
        for each in (Auto(1e9), Round(), Bias())
    }
    first = next(place for place in gains["auto"] if place)
    assert gains["auto"][first] == max(gains["round"][first], gains["bias"][first])


def test_behind_the_budget_biases_alone_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxq.samples import open_samples

    prepared, plan, read = planned()
    monkeypatch.setattr(module, "rounding_of", lambda *_: pytest.fail("it is late"))
    late = Auto(-time.process_time())
    made = late.improve(prepared, plan, open_samples(read, prepared.inputs))
    assert [o.improvement for o in made.outcomes] == ["auto"] * len(made.outcomes)
    assert all(module.TIME_WAS_UP in o.why for o in made.outcomes if o.place)
    weights = {name: each.qparams for name, each in plan.weights.items()}
    assert {name: each.qparams for name, each in made.plan.weights.items()} == weights


def test_the_budget_is_as_long_as_the_work_so_far() -> None:
    assert Auto().within(7.0)._seconds == 7.0
    assert Auto().within(0.1)._seconds == module.LEAST_SECONDS
    assert Bias().within(7.0).name == "bias"


def test_quantize_knows_its_name() -> None:
    asked = ALL_INTEGERS.set_improve(["auto"])
    made = onnxq.quantize(layers(), samples(), qconfig=asked, target="x86-vnni")
    assert made.verdict is not None
    assert any("improvement 'auto'" in note for note in made.verdict.notes)
