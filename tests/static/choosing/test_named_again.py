"""Chosen forms, named in a qconfig node by node, give the same bytes, and nothing is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.qconfig import Choice, QConfigMapping, default_qconfig_mapping
from onnxq.static.plan import Plan
from tests.examples import model, weights
from tests.golden_models import BODIES, CONSTANTS, conv_model, data
from tests.small_networks import TOKENS, WIDTH, WORDS, embedded, encoder_block, perceptron, repeated
from tests.static.noise.nets import feed_forwards, tokens

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    Batches = list[dict[str, npt.NDArray[np.generic]]]

RNG = np.random.default_rng(3)


def reals(*shape: int) -> Batches:
    return [{"x": RNG.standard_normal(shape).astype(np.float32)} for _ in range(3)]


def pooled_stem() -> onnx.ModelProto:
    """A Conv of one channel, which takes longer in integers, and a pool ahead of a wider Conv."""
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MaxPool", ["b"], ["c"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w"], ["y"], "conv", pads=[1, 1, 1, 1]),
    ]
    constants = {"v": weights(1, 32, 1, 3, 3), "w": weights(2, 64, 32, 3, 3)}
    return model(nodes, constants, {"x": [1, 1, 32, 96]}, {"y": onnx.TensorProto.FLOAT})


IDS: Batches = [{"ids": RNG.integers(0, WORDS, (TOKENS, 1))} for _ in range(3)]
NETWORKS: dict[str, tuple[onnx.ModelProto | ir.Model, Batches]] = {
    **{
        name: (conv_model(body, constants=CONSTANTS), [dict(batch) for batch in data(2)])
        for name, body in BODIES.items()
    },
    "encoder_block": (encoder_block(), reals(1, TOKENS, WIDTH)),
    "perceptron": (perceptron(), reals(4, WIDTH)),
    "lstm": (embedded("LSTM"), IDS),
    "gru": (embedded("GRU"), IDS),
    "repeated": (repeated(), reals(8, 16 * WIDTH)),
    "pooled_stem": (pooled_stem(), reals(1, 1, 32, 96)),
    "outliers": (feed_forwards(3, 100.0), [dict(batch) for batch in tokens(8)]),
}


def made(
    source: onnx.ModelProto | ir.Model,
    samples: Batches,
    mapping: QConfigMapping,
) -> tuple[Plan, bytes]:
    prepared = onnxq.prepare(source, mapping, "x86-vnni")
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    return plan, onnxq.rewrite(prepared, plan).to_bytes()


@pytest.mark.parametrize("choice", Choice)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_chosen_forms_named_one_by_one_give_the_same_bytes(
    name: str, choice: Choice, tmp_path: Path
) -> None:
    source, samples = NETWORKS[name]
    plan, wanted = made(source, samples, default_qconfig_mapping().set_choice(choice))
    plan.save(tmp_path / "plan.json")
    mapping = Plan.load(tmp_path / "plan.json").qconfig
    assert QConfigMapping.from_yaml(mapping.to_yaml()) == mapping
    again, got = made(source, samples, mapping)
    assert got == wanted
    assert not onnxq.prepare(source, mapping, "x86-vnni").chosen.reasons
    assert {n: c.precision for n, c in again.precisions.items()} == {
        n: c.precision for n, c in plan.precisions.items()
    }
