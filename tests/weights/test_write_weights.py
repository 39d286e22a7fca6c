"""A model with weights in blocks."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.ort import runtime
from onnxq.weights.codes_file import CodesFile
from onnxq.weights.find_codes import find_codes
from onnxq.weights.plan_weights import WeightRequest, plan_weights
from onnxq.weights.write_products import FLOAT_ACCURACY
from onnxq.weights.write_weights import ProductForm, write_weights
from tests.dynamic_models import normal, op_types, parsed, run
from tests.weights.block_models import canonical

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


@pytest.mark.parametrize("form", ProductForm)
def test_a_weight_that_is_an_output_too_stays_beside_its_codes(form: ProductForm) -> None:
    text = "g (float[n, 32] x) => (float[n, 32] y, float[32, 32] w) { y = MatMul(x, w) }"
    source = parsed(text, {"w": normal(32, 32)})
    made = onnxq.quantize_weights(source, method="rtn", form=form)
    assert {"w", "w_codes"} <= made.graph.initializers.keys()
    x = {"x": normal(3, 32)}
    with runtime.open_session(made, threads=1) as session:
        np.testing.assert_array_equal(session.run(x, ["w"])[0], normal(32, 32))
    onnxq.cross_check(made, x).check()
