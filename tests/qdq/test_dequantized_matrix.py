"""Form `dequantize` of quantize-weights, whatever stands around a MatMul: 1,632 files.

Each is made by quantize-weights, and both asked what becomes of it: the reference has to make
MatMulNBits where ONNX Runtime does, and to compute its results within the bounds of `cross_check`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxq
from tests.dynamic_models import normal, op_types
from tests.examples import as_ir
from tests.qdq.test_groupwise_matmuls import BODIES, SIZES, as_nodes, both_make_it

if TYPE_CHECKING:
    import onnx_ir as ir

K, N = 72, 24
"""Blocks of 32 and more leave a last one that is filled up; of 16 and 8 bits, all are whole."""
AROUND = BODIES | {
    "turned weight": "y = Gemm(x, t) transB=1",
    "turned weight, bias": "y = Gemm(x, t, vector) transB=1",
    "two matmuls": "h = MatMul(x, w); a = Tanh(h); y = MatMul(a, v)",
    "one weight, two matmuls": "g = Neg(x); h = MatMul(x, w); i = MatMul(g, w); y = Add(h, i)",
}
FORMS: list[tuple[int, str, int, int | str]] = list(
    itertools.product((2, 4, 8), ("affine", "symmetric"), (16, 32, 64, 128), ("B", 5))
)  # bits, scheme, block, rows


def float_model(body: str, rows: int | str, *, more: bool) -> ir.Model:
    """The body's float model, its weights of K or N inputs; x has another axis where asked."""
    sizes = SIZES | {"w": (K, N), "v": (N, N) if "MatMul(a, v)" in body else (K, N), "t": (N, K)}
    arrays = {
        name: normal(*size, seed=seed) for seed, (name, size) in enumerate(sorted(sizes.items()))
    }
    constants = [
        helper.make_tensor(n, TensorProto.FLOAT, a.shape, np.ravel(a).tolist())
        for n, a in arrays.items()
        if f"{n})" in body.replace(",", ")")
    ]
    x = (rows, 3, K) if more else (rows, K)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(as_nodes(body), "g", [given], [out], constants)
    return as_ir(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


@pytest.mark.nightly(nights=2)
@pytest.mark.parametrize("name", AROUND)
def test_files_compute_what_the_reference_says(name: str) -> None:
    body = AROUND[name]
    wrong = []
    for bits, scheme, block, rows in FORMS:
        more = "Gemm" not in body and rows == "B"
        source = float_model(body, rows, more=more)
        made = onnxq.quantize_weights(
            source,
            bits=bits,
            group_size=block,
            scheme=scheme,
            method="rtn",
            format="qdq",
            check=onnxq.Check.NONE,
        )
        assert "DequantizeLinear" in op_types(made)
        theirs, ours = both_make_it(made)
        x = {"x": normal(5, 3, K) if more else normal(5, K)}
        found = onnxq.cross_check(made, x)
        try:
            found.check()
        except onnxq.errors.VerificationError as error:
            wrong.append((bits, scheme, block, rows, str(error)[:200]))
        if ours != theirs:
            wrong.append((bits, scheme, block, rows, f"MatMulNBits: {theirs}, ours {ours}"))
    assert not wrong
