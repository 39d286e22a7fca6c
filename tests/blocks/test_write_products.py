"""Products of weights in blocks, as ONNX Runtime runs them."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.blocks.block_codes import BlockCodes
from onnxq.blocks.block_spec import BlockSpec
from onnxq.blocks.plan_weights import WeightRequest, plan_weights
from onnxq.blocks.write_products import FLOAT_ACCURACY, ProductWriter
from tests.blocks.block_models import canonical
from tests.dynamic_models import normal, op_types, parsed, run

ON_GRID = np.round(normal(24, 40) * 2).clip(-8, 7)
"""Whole numbers, which 4 bits hold: what is written must give what the float model gives."""
GRAPHS = {
    "right": "y = MatMul(x, w)",
    "left": "y = MatMul(v, t)",
    "gemm": "y = Gemm(x, w, b)",
    "turned weight": "y = Gemm<transB = 1>(x, v, b)",
    "turned input": "y = Gemm<transA = 1, transB = 1>(t, v, b)",
    "beta": "y = Gemm<beta = 2.0, transB = 1>(x, v, b)",
    "no bias": "y = Gemm<transB = 1>(x, v)",
    "bias of one row": "y = Gemm<transB = 1>(x, v, r)",
    "weight on the left": "y = Gemm(v, t, c)",
    "weight on the left, turned": "y = Gemm<transA = 1, transB = 1>(w, x, c)",
}
CONSTANTS = {
    "w": ON_GRID.T.copy(),
    "v": ON_GRID,
    "b": normal(24),
    "r": normal(1, 24),
    "c": normal(24, 1),
}


EXACT = BlockCodes(
    BlockSpec(4, 16),
    (ON_GRID + 8).astype(np.uint8),
    np.ones((24, 3), np.float32),
    np.full((24, 3), 8, np.uint8),
)


@pytest.mark.parametrize("case", GRAPHS)
def test_what_is_written_computes_the_product(case: str) -> None:
    left = "left" in case
    feed = "t" if "t" in re.findall(r"\b[a-z]\b", GRAPHS[case])[1:] else "x"
    x = normal(40, 3) if feed == "t" else normal(3, 40)
    used = {n: a for n, a in CONSTANTS.items() if n in re.findall(r"\b[a-z]\b", GRAPHS[case])}
    sizes = ", ".join(map(str, x.shape))
    result = "24, 3" if left else "3, 24"
    text = f"g (float[{sizes}] {feed}) => (float[{result}] y) {{ [p] {GRAPHS[case]} }}"
    source = canonical(parsed(text, used))
    wanted = run(source, {feed: x})
    (name, decision), *_ = plan_weights(source, WeightRequest(EXACT.spec)).quantized.items()
    node = next(node for node in source.graph if node.name == name)
    tensors = {k: ir.tensor(a) for k, a in EXACT.packed().arrays.items()}
    ProductWriter(source, FLOAT_ACCURACY).write(node, tensors, decision)
    assert "MatMulNBits" in op_types(source)
    assert not {"MatMul", "Gemm"} & set(op_types(source))
    # sums of 40 products with whole numbers up to 8, each rounded once
    np.testing.assert_allclose(run(source, {feed: x}), wanted, rtol=0, atol=1e-3)
