"""Rounding towards the float model's outputs, on all kinds of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

import onnxq
from onnxq.samples import open_samples
from onnxq.targets.bias_preserving import leave_int16
from onnxq.weights import Round
from onnxq.weights.layers import layers_of
from tests.examples import ALL_INTEGERS, images, model, weights
from tests.this_machine import TARGET

if TYPE_CHECKING:
    import onnx

    from onnxq.qconfig import QConfigMapping
    from onnxq.weights import Improved


def asked(bits: int) -> QConfigMapping:
    """Weights of so many bits; 2 are ternary integers, stored in 4."""
    if bits == 8:
        return ALL_INTEGERS
    observer = f"observer: NarrowRangeObserver, dtype: int4, quant_max: {2 ** (bits - 1) - 1}"
    return ALL_INTEGERS.with_overrides([f"global={{weight: {{{observer}}}}}"])


def layers(*, tied: bool = False) -> onnx.ModelProto:
    """A plain, a grouped, a depthwise and a transposed convolution, a MatMul and a Gemm."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], "plain", pads=[1] * 4),
        node("Relu", ["c1"], ["r1"], "relu"),
        node("Conv", ["r1", "w2"], ["c2"], "grouped", group=2, pads=[1] * 4, strides=[2, 2]),
        node(
            "Conv", ["c2", "w3", "b3"], ["c3"], "depthwise", group=8, dilations=[2, 2], pads=[2] * 4
        ),
        node("ConvTranspose", ["c3", "w4"], ["c4"], "transposed", strides=[2, 2], group=2),
        node("Flatten", ["c4"], ["f"], "flatten"),
        node("MatMul", ["f", "w5"], ["p"], "matmul"),
        node("Gemm", ["p", "w6", "b6"], ["y"], "gemm", transB=1),
    ]
    constants = {
        "w1": weights(1, 8, 3, 3, 3),
        "b1": weights(2, 8),
        "w2": weights(3, 8, 4, 3, 3),
        "w3": weights(4, 8, 1, 3, 3),
        "b3": weights(5, 8),
        "w4": weights(6, 8, 2, 2, 2),
        "w5": weights(7, 4 * 64, 6),
        "w6": weights(8, 5, 6),
        "b6": weights(9, 5),
    }
    if tied:
        nodes.insert(2, node("Conv", ["x", "w1"], ["again"], "again", pads=[1] * 4))
        nodes.insert(3, node("Add", ["r1", "again"], ["both"], "both"))
        nodes[4].input[0] = "both"
    return model(nodes, constants, {"x": ["N", 3, 8, 8]})


def rounded(source: onnx.ModelProto, bits: int, target: str = TARGET) -> Improved:
    samples = {"x": images(96)}
    prepared = onnxq.prepare(source, asked(bits), target)
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    return Round().improve(prepared, plan, open_samples(onnxq.Samples(samples, 8), prepared.inputs))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_every_layer_is_rounded_onto_its_own_qparams_and_the_outputs_gain(bits: int) -> None:
    better = rounded(layers(), bits)
    outcomes = {outcome.place: outcome for outcome in better.outcomes}
    names = {"plain", "grouped", "depthwise", "matmul", "gemm", "transposed"}
    assert set(outcomes) == names | {""}
    assert {"grouped", "depthwise"} <= {n for n in names if outcomes[n].kept}
    whole = outcomes[""]
    assert whole.gain_db is not None
    assert whole.gain_db > {8: 0.0, 4: 1.5, 2: 1.0}[bits]
    given = layers_of(onnxq.prepare(layers(), asked(bits), TARGET).model, better.plan)
    for layer in layers_of(better.prepared.model, better.plan).values():
        assert np.abs(layer.integers).max() <= 2 ** (bits - 1) - 1
        if not np.array_equal(layer.matrix, given[layer.name].matrix):  # what its integers are
            np.testing.assert_allclose(layer.matrix, layer.stored, rtol=1e-6, atol=0)


def test_the_same_samples_give_the_same_weights() -> None:
    one, two = (rounded(layers(), 4) for _ in range(2))
    files = [onnxq.rewrite(each.prepared, each.plan).to_bytes() for each in (one, two)]
    assert files[0] == files[1]


def test_no_pair_of_products_leaves_int16_where_the_target_adds_in_pairs() -> None:
    better = rounded(layers(), 8, "portable")
    checked = 0
    for layer in layers_of(better.prepared.model, better.plan).values():
        if not layer.rule.saturating_pairs or layer.partners is None:
            continue
        integers = layer.integers.astype(np.int16)
        alone = layer.partners == np.arange(layer.inputs)
        left = leave_int16(integers, integers[..., layer.partners])
        assert not left[..., ~alone].any()
        checked += 1
    assert checked >= 4
    samples = {"x": images(8, seed=1)}
    made = onnxq.rewrite(better.prepared, better.plan)
    assert onnxq.cross_check(made, samples).differing == 0


def test_a_weight_that_others_read_is_left_as_it_is() -> None:
    outcomes = {outcome.place: outcome for outcome in rounded(layers(tied=True), 4).outcomes}
    assert "other nodes read its weight" in outcomes["plain"].why
    assert "other nodes read its weight" in outcomes["again"].why
    assert outcomes["grouped"].kept
