from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from onnxq.graph.io import load
from onnxq.observers import ChannelMeanObserver
from onnxq.ort.runtime import open_session
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import ALL_INTEGERS, images, model, network, weights

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Singles
    from onnxq.static.prepared import Prepared


def linear() -> onnx.ModelProto:
    """A MatMul of 64 by 64, of which many pairs leave int16 at the full range."""
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul")],
        {"w": weights(3, 64, 64)},
        {"x": ["N", 64]},
    )


def tokens(seed: int) -> Singles:
    """Float32 (256, 64) around means of their own, as tokens have that resemble each other."""
    means = np.random.default_rng(1).normal(size=64)
    deviations = np.random.default_rng(seed).normal(size=(256, 64))
    return (means + 0.3 * deviations).astype(np.float32)


def planned(target: str) -> tuple[Prepared, Plan]:
    prepared = prepare(linear(), target=target)
    return prepared, plan(prepared, calibrate(prepared, {"x": tokens(2)}))


def test_a_weight_that_gives_up_range_is_rounded_by_the_means_of_its_input() -> None:
    _, made = planned("portable")
    kept = made.weights["matmul"].bias_preserving
    assert kept is not None
    assert kept.inputs is not None
    np.testing.assert_allclose(kept.inputs.means, tokens(2).mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(kept.inputs.deviations, tokens(2).std(axis=0), atol=1e-4)


def test_on_other_samples_the_mean_of_the_error_is_smaller_than_of_the_full_range() -> None:
    x, found = tokens(5), {}
    for target in ("x86-vnni", "portable"):
        session = open_session(rewrite(*planned(target)))
        (y,) = session.run({"x": x}, ["y"])
        error = y.astype(np.float64) - x @ weights(3, 64, 64)
        found[target] = np.abs(error.mean(axis=0)).mean()
    assert found["portable"] < 0.5 * found["x86-vnni"]


def test_targets_that_sum_exactly_look_at_no_means() -> None:
    prepared = prepare(network(), ALL_INTEGERS, "x86-vnni")
    assert not prepared.probed
    observers = prepare(network(), ALL_INTEGERS, "portable").probed
    assert {spec.name for spec in observers.values()} == {ChannelMeanObserver.__name__}


def test_statistics_of_another_target_leave_plain_sums() -> None:
    elsewhere = prepare(linear(), target="x86-vnni")
    statistics = calibrate(elsewhere, {"x": tokens(2)})
    prepared = prepare(linear(), target="portable")
    kept = plan(prepared, statistics).weights["matmul"].bias_preserving
    assert kept is not None
    assert kept.inputs is None


def test_channels_of_a_convolution_are_on_axis_1() -> None:
    prepared = prepare(load(network()), ALL_INTEGERS, "portable")
    made = plan(prepared, calibrate(prepared, {"x": images(4)}))
    counts = {
        name: len(weight.bias_preserving.inputs.means)
        for name, weight in made.weights.items()
        if weight.bias_preserving is not None and weight.bias_preserving.inputs is not None
    }
    assert counts.get("conv1", 3) == 3
    assert counts.get("conv2", 8) == 8
    assert counts
