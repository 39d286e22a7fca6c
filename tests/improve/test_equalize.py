"""Equalization of channels between convolutions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxq
from onnxq.graph.walk import walk
from onnxq.graph.weights import constant_array
from onnxq.improve import Equalize
from onnxq.improve.equalize import balanced, equal_ranges
from onnxq.improve.factor_sites import sites_of, with_factors
from onnxq.operator.nodes import input_at
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.samples import open_samples
from tests.examples import ALL_INTEGERS, images, model, weights

PER_TENSOR = default_qconfig_mapping("qnnpack")
SAMPLES = {"x": images(32)}


def chain(spread: float = 5.0, between: str = "Relu", depth: int = 3) -> onnx.ModelProto:
    """Convolutions whose channels between differ by up to 2^spread, which the next one undoes."""
    rng = np.random.default_rng(4)
    constants: dict[str, npt.NDArray[np.float32]] = {}
    nodes, x, back = [], "x", np.ones(3)
    for i in range(depth):
        last = i == depth - 1
        factors = np.ones(8) if last else np.exp2(rng.uniform(-spread, spread, 8))
        w = (
            weights(i, 8, len(back), 3, 3)
            * factors.reshape(-1, 1, 1, 1)
            / back.reshape(1, -1, 1, 1)
        )
        constants |= {f"w{i}": w.astype(np.float32)}
        constants |= {f"b{i}": (weights(10 + i, 8) * factors).astype(np.float32)}
        made = "y" if last else f"c{i}"
        nodes.append(
            helper.make_node("Conv", [x, f"w{i}", f"b{i}"], [made], f"conv{i}", pads=[1] * 4)
        )
        if not last:
            nodes.append(helper.make_node(between, [made], [f"r{i}"], f"relu{i}"))
        x, back = f"r{i}", factors
    return model(nodes, constants, {"x": ["N", 3, 8, 8]})


def test_one_pair_has_equal_ranges_as_in_the_paper() -> None:
    """Equation 11 of the paper: s = sqrt(r1 r2) / r2, and both ranges are sqrt(r1 r2) then."""
    r1, r2 = np.array([4.0, 1.0, 0.0]), np.array([1.0, 9.0, 2.0])
    s = equal_ranges(r1, r2)
    assert np.allclose(s[:2], (np.sqrt(r1 * r2) / r2)[:2])
    assert s[2] == 1
    assert np.allclose((r1 / s)[:2], (r2 * s)[:2])


@pytest.mark.parametrize("between", ["Relu", "LeakyRelu"])
def test_chains_settle_where_every_pair_has_equal_ranges_and_compute_the_same(between: str) -> None:
    prepared = onnxq.prepare(chain(between=between), PER_TENSOR)
    sites = sites_of(prepared, 1)
    assert len(sites) == 2
    made = with_factors(prepared.model, balanced(prepared, sites))
    w = {n.name: constant_array(input_at(n, 1)) for n, _ in walk(made.graph) if n.op_type == "Conv"}
    for first, second in (("conv0", "conv1"), ("conv1", "conv2")):
        r1 = np.abs(w[first]).max(axis=(1, 2, 3))
        r2 = np.abs(w[second]).max(axis=(0, 2, 3))
        assert np.allclose(r1, r2, rtol=1e-3)
    results = []
    for each in (prepared.model, made):
        with runtime.open_session(each, threads=1) as session:
            results.append(session.run(SAMPLES)[0].astype(np.float64))
    assert np.abs(results[1] - results[0]).max() <= 1e-5 * np.abs(results[0]).max()


@pytest.mark.parametrize("qconfig", [PER_TENSOR, None], ids=["per tensor", "per channel"])
def test_unlike_channels_gain_at_the_outputs(qconfig: QConfigMapping | None) -> None:
    prepared = onnxq.prepare(chain(), qconfig)
    made = Equalize().improve(prepared, open_samples(onnxq.Samples(SAMPLES, 4), prepared.inputs))
    whole = next(outcome for outcome in made.outcomes if not outcome.place)
    assert whole.kept
    assert whole.gain_db is not None
    assert whole.gain_db > 6


def test_channels_that_hardly_ever_speak_widen_no_range() -> None:
    source = chain(2.0)
    constants = {constant.name: constant for constant in source.graph.initializer}
    norms = np.sqrt(np.square(numpy_helper.to_array(constants["w0"])).sum((1, 2, 3)))
    bias = numpy_helper.to_array(constants["b0"]).copy()
    bias[:6] = -3.4 * norms[:6]  # one place of 3,000 is beyond the Relu
    constants["b0"].CopyFrom(numpy_helper.from_array(bias, "b0"))
    unseen = {"x": images(64, seed=9)}
    found = []
    for names in ((), ("equalize",)):
        made = onnxq.quantize(
            source,
            onnxq.Samples({"x": images(64)}, batch_size=4),
            qconfig=ALL_INTEGERS.set_improve(names),
            check=unseen,
        )
        assert made.verdict is not None
        found.append(made.verdict.outputs[0].sqnr_db or 0.0)
    assert found[1] > found[0] + 3


def test_channels_that_are_alike_stay() -> None:
    prepared = onnxq.prepare(chain(0.0), PER_TENSOR)
    made = Equalize().improve(prepared, open_samples(onnxq.Samples(SAMPLES, 4), prepared.inputs))
    whole = next(outcome for outcome in made.outcomes if not outcome.place)
    assert whole.kept or made.model is prepared.model


def test_a_sigmoid_between_convolutions_leaves_no_site() -> None:
    assert sites_of(onnxq.prepare(chain(between="Sigmoid"), PER_TENSOR), 1) == []
