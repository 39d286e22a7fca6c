from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.canonical import canonicalize
from onnxq.graph.passes.fuse_softmax import TakeLogSumsApart
from tests.dynamic_models import planned
from tests.op_types import op_types

if TYPE_CHECKING:
    from tests.graph.conftest import Parse, Run

X = np.random.default_rng(0).uniform(0.1, 2.0, (2, 3, 4)).astype(np.float32)
G = "g (float[2,3,4] x) => (float[{}] y)"


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        (G.format("2,3,1") + " { y = ReduceLogSum(x, last) }", 18),
        (G.format("2,3") + " { y = ReduceLogSum<axes = [-1], keepdims = 0>(x) }", 13),
        (G.format("1,1,1") + " { y = ReduceLogSum(x) }", 21),
        (G.format("1,1,1") + " { y = ReduceLogSum(x) }", 13),
        (G.format("2,3,4") + " { y = ReduceLogSum<noop_with_empty_axes = 1>(x) }", 18),
    ],
)
def test_the_two_give_what_the_one_gave(text: str, opset: int, parse: Parse, run: Run) -> None:
    weights = {"last": np.array([-1])} if "last" in text else {}
    model = parse(text, weights, opset)
    (wanted,) = run(model, {"x": X})
    canonical = canonicalize(model).model
    assert op_types(canonical) == ["ReduceSum", "Log"]
    (y,) = run(canonical, {"x": X})
    assert y.shape == wanted.shape
    assert np.allclose(y, wanted, rtol=0, atol=1e-6)  # sums in another order: an ulp or two of 1
    assert not TakeLogSumsApart()(canonical).modified


def test_whole_numbers_stay_one_node(parse: Parse) -> None:
    model = parse("g (int64[2,3] x) => (int64[1,1] y) { y = ReduceLogSum(x) }")
    assert not TakeLogSumsApart()(model).modified


def test_a_matmul_ahead_of_it_stays_float_without_samples(parse: Parse) -> None:
    w = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    model = parse(
        """g (float[N,64] x) => (float[N,1] y, float[N,64] o) {
            o = MatMul(x, w) p = MatMul(x, w) s = Mul(p, p) y = ReduceLogSum(s, last)
        }""",
        {"w": w, "last": np.array([-1])},
    )
    _, plan = planned(model)
    assert any("reads its results" in str(decision) for decision in plan.decisions.values())
