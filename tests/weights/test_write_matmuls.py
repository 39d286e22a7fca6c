"""MatMuls by weights in groups, as ONNX Runtime runs them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from onnxq.qparams.groups import GroupIntegers
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.weight_plan import Groupwise, WeightRequest
from onnxq.weights.write_weights import (
    FLOAT_ACCURACY,
    GroupwiseWriter,
    StoredIntegers,
    write_weights,
)
from tests.dynamic_models import normal, op_types, parsed, run
from tests.weights.block_models import canonical, hessian_of, solved

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


EXACT = GroupIntegers(
    GroupSpec(4, 16),
    (ON_GRID + 8).astype(np.uint8),
    np.ones((24, 3), np.float32),
    np.full((24, 3), 8, np.uint8),
)


@pytest.mark.parametrize("case", GRAPHS)
def test_what_is_written_computes_the_matmul(case: str) -> None:
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
    GroupwiseWriter(source, FLOAT_ACCURACY).write(node, tensors, decision)
    assert "MatMulNBits" in op_types(source)
    assert not {"MatMul", "Gemm"} & set(op_types(source))
    # sums of 40 products with whole numbers up to 8, each rounded once
    np.testing.assert_allclose(run(source, {feed: x}), wanted, rtol=0, atol=1e-3)


@pytest.mark.parametrize("inputs", [64, 72])
@pytest.mark.parametrize("scheme", [*Scheme])
def test_onnx_runtime_reads_integers_of_every_scheme(scheme: Scheme, inputs: int) -> None:
    w = normal(24, inputs)
    text = f"g (float[3, {inputs}] x) => (float[3, 24] y) {{ [p] y = MatMul(x, w) }}"
    source = canonical(parsed(text, {"w": w.T.copy()}))
    plan = plan_weights(source, WeightRequest(GroupSpec(4, 32, scheme)))
    (name, decision), *_ = plan.quantized.items()
    made = solved(w, decision.spec, Method.GPTQ, hessian_of(normal(200, inputs)))
    tensors = {kind: ir.tensor(array) for kind, array in made.packed().arrays.items()}
    written = write_weights(source, plan, {name: tensors}, FLOAT_ACCURACY)
    x = normal(3, inputs, seed=1)
    # each of some 70 sums rounds a few times; 1e-5 is 80 ulps
    bound = 1e-5 * np.abs(x) @ np.abs(made.dequantized.T) + 1e-6
    assert (np.abs(run(written, {"x": x}) - x @ made.dequantized.T) <= bound).all()


DECISION = Groupwise(GroupSpec(), Method.RTN, 1, "w", inputs_first=True, outputs=8, inputs=32)


def graph() -> ir.Graph:
    return ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2, 2] x) => (float[2, 2] y)'
        " <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"
    ).graph


def test_integers_of_one_weight_are_made_once_in_each_graph() -> None:
    stored, first, second = StoredIntegers(), graph(), graph()
    calls = []

    def make() -> list[ir.Value]:
        calls.append(1)
        return [ir.val("integers", const_value=ir.tensor(np.zeros(2, np.uint8)))]

    others = replace(DECISION, slot=0), replace(DECISION, tensor="v")
    integers = stored.of(first, DECISION, make)
    assert stored.of(first, others[0], make) is integers
    assert stored.of(first, others[1], make) is not integers
    assert stored.of(second, DECISION, make) is not integers
    assert len(calls) == 3
