"""Weights in blocks behind DequantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.blocks.codes_file import CodesFile
from onnxq.blocks.find_codes import find_codes
from onnxq.blocks.plan_weights import WeightRequest, plan_weights
from onnxq.blocks.write_products import FLOAT_ACCURACY
from onnxq.blocks.write_weights import ProductForm, write_weights
from onnxq.in_blocks.block_spec import BlockSpec, Method, Scheme
from tests.blocks.block_models import canonical
from tests.dynamic_models import normal, op_types, parsed, run

TWO = parsed(
    """g (float[n, 40] x) => (float[n, 8] y) {
        h = MatMul(x, w)
        y = Gemm<transB = 1>(h, v, b)
    }""",
    {"w": normal(40, 24), "v": normal(8, 24), "b": normal(8)},
)


@pytest.mark.parametrize("scheme", [Scheme.AFFINE, Scheme.SYMMETRIC])
@pytest.mark.parametrize("bits", [4, 8])
def test_both_forms_stand_for_the_same_weights(bits: int, scheme: Scheme) -> None:
    model = canonical(TWO)
    plan = plan_weights(model, WeightRequest(BlockSpec(bits, 16, scheme), Method.RTN))
    codes = find_codes(model, plan, (), CodesFile())
    nbits = write_weights(model, plan, codes, FLOAT_ACCURACY)
    plain = write_weights(model, plan, codes, FLOAT_ACCURACY, ProductForm.DEQUANTIZE)
    assert op_types(plain).count("DequantizeLinear") == 2
    assert not [node for node in plain.graph.all_nodes() if node.domain]
    x = {"x": normal(5, 40)}
    wanted = run(nbits, x)
    # ONNX Runtime rounds activations of this form to int8 in a product: 1% of the largest result
    np.testing.assert_allclose(run(plain, x), wanted, rtol=0, atol=0.03 * np.abs(wanted).max())
