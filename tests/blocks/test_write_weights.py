"""A model with weights in blocks."""

from __future__ import annotations

import numpy as np

from onnxq.blocks.codes_file import CodesFile
from onnxq.blocks.find_codes import find_codes
from onnxq.blocks.plan_weights import WeightRequest, plan_weights
from onnxq.blocks.write_products import FLOAT_ACCURACY
from onnxq.blocks.write_weights import write_weights
from tests.blocks.block_models import canonical
from tests.dynamic_models import normal, op_types, parsed, run

SHARED = parsed(
    """g (float[n, 32] x) => (float[n, 32] y) {
        h = MatMul(x, w)
        r = Relu(h)
        y = MatMul(r, w)
    }""",
    {"w": normal(32, 32)},
)


def test_readers_of_one_weight_share_its_codes() -> None:
    model = canonical(SHARED)
    plan = plan_weights(model, WeightRequest())
    made = write_weights(model, plan, find_codes(model, plan, (), CodesFile()), FLOAT_ACCURACY)
    assert op_types(made).count("MatMulNBits") == 2
    assert sorted(made.graph.initializers) == ["w_codes", "w_scales", "w_zero_points"]
    assert "w" in model.graph.initializers, "the float model stays as it is"
    x = normal(3, 32)
    left = run(made, {"x": x}) - run(model, {"x": x})
    assert np.square(left).mean() < 0.02 * np.square(run(model, {"x": x})).mean()
