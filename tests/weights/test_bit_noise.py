"""Noise by bits: measured where a layer's integers alone are rounded, in one walk for all."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.canonical import canonicalize
from onnxq.graph.walk import node_name
from onnxq.ort import runtime
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.bit_noise import bit_noise, judged_outputs, output_noise
from onnxq.weights.find_integers import find_integers
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile
from onnxq.weights.weight_plan import WeightPlan, WeightRequest
from onnxq.weights.write_weights import FLOAT_ACCURACY, GroupwiseWriter
from scripts._decoder import Sizes, decoder, tokens

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Reals

SIZES = Sizes(depth=1)
BATCHES = list(tokens(SIZES, 2, 6))


@cache
def planned() -> tuple[ir.Model, WeightPlan]:
    source = canonicalize(decoder(SIZES)).model
    return source, plan_weights(source, WeightRequest(method=Method.RTN))


def logits(model: ir.Model) -> Reals:
    with runtime.open_session(model, threads=1) as session:
        return np.stack([session.run(batch, ["logits"])[0] for batch in BATCHES]).astype(np.float64)


def test_noise_is_that_of_the_whole_model_with_one_layer_in_groups() -> None:
    source, plan = planned()
    names = ["MatMul_pq0", "MatMul_d0", "MatMul_logits"]
    found = output_noise(source, plan, BATCHES, [{name: GroupSpec()} for name in names])
    integers = find_integers(source, plan, (), QuantizedWeightsFile())
    wanted = logits(source)
    for name, noise in zip(names, found, strict=True):
        alone = source.clone()
        (node,) = (n for n in alone.graph if node_name(n) == name)
        GroupwiseWriter(alone, FLOAT_ACCURACY).write(node, integers[name], plan.quantized[name])
        left = logits(alone) - wanted
        assert noise == pytest.approx(np.square(left).sum() / np.square(wanted).sum(), rel=1e-3)


def test_more_bits_have_less_noise_and_a_variant_without_layers_has_none() -> None:
    source, plan = planned()
    noise = bit_noise(source, plan, BATCHES, BATCHES)
    assert [*noise] == [*plan.quantized]
    for each in noise.values():
        assert each.at(2) > each.at(4) > each.at(8) > 0
        assert each.at(4) == pytest.approx(each.carried)
    assert output_noise(source, plan, BATCHES, [{}]) == [0.0]


def test_caches_are_not_judged() -> None:
    assert judged_outputs(planned()[0]) == ["logits"]
