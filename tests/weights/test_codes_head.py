"""Head of a job's codes: it changes with whatever the codes depend on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.canonical import canonicalize
from onnxq.qparams.group_spec import BlockSpec, Method
from onnxq.weights.codes_head import codes_head
from onnxq.weights.plan_weights import WeightRequest, plan_weights
from scripts._decoder import Sizes, decoder

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

SOURCE = canonicalize(decoder(Sizes(depth=1))).model
PLAN = plan_weights(SOURCE, WeightRequest(method=Method.RTN))


def test_another_model_plan_or_sample_is_another_head() -> None:
    batch: dict[str, Array] = {"x": np.zeros(3)}
    head = codes_head(SOURCE, PLAN, [batch])
    assert codes_head(SOURCE, PLAN, [batch]) == head
    other = canonicalize(decoder(Sizes(depth=1), seed=1)).model
    mixed = PLAN.with_specs({"MatMul_d0": BlockSpec(8)})
    found = [
        codes_head(other, PLAN, [batch]),
        codes_head(SOURCE, mixed, [batch]),
        codes_head(SOURCE, PLAN, [{"x": np.ones(3)}]),
    ]
    fields = [f.name for f in dataclasses.fields(head)]
    changed = [[f for f in fields if getattr(head, f) != getattr(each, f)] for each in found]
    assert changed == [["model_hash"], ["plan"], ["samples"]]
    assert codes_head(SOURCE, PLAN, ()).samples == ""
