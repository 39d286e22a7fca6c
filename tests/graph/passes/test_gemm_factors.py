from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.passes.fold_factors_ahead import FoldGemmFactors
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.weights import EAGER_BYTES

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from tests.graph.conftest import Feeds, Parse, Run

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
EPS = np.finfo(np.float32).eps


def weights(seed: int, *shape: int) -> Singles:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def graph(call: str) -> str:
    return f"g (float[2,3] x) => (float[2,5] y) {{ y = {call} }}"


def assert_same_function(model: ir.Model, run: Run, feeds: Feeds | None = None) -> None:
    """The pass changes the model, but not what it computes, and a second time nothing."""
    before = run(model, feeds or {"x": X})
    assert FoldGemmFactors()(model).modified
    assert not FoldGemmFactors()(model).modified
    UniqueNames()(model)
    after = run(model, feeds or {"x": X})
    # four terms, each rounded at most three times, in another order
    np.testing.assert_allclose(after[0], before[0], rtol=0, atol=12 * EPS * np.abs(before).max())


@pytest.mark.parametrize("bias", [None, (), (1,), (1, 1), (5,), (1, 5), (2, 1), (2, 5)], ids=str)
@pytest.mark.parametrize("trans", [0, 1])
def test_alpha_and_beta_go_into_weight_and_bias(
    bias: tuple[int, ...] | None, trans: int, parse: Parse, run: Run
) -> None:
    arrays = {"w": weights(1, 5, 3) if trans else weights(1, 3, 5)}
    if bias is not None:
        arrays["b"] = weights(2, *bias)
    call = f"Gemm<alpha=0.5, beta=-2.0, transB={trans}>(x, w{'' if bias is None else ', b'})"
    model = parse(graph(call), arrays)
    assert_same_function(model, run)
    (node,) = model.graph
    assert set(node.attributes) == {"transB"}
    assert [v.name for v in node.inputs if v is not None] == ["x", *arrays]
    if bias is not None:
        wanted = bias if int(np.prod(bias)) > 1 else (5,)
        value = model.graph.initializers["b"]
        assert value.const_value is not None
        assert value.shape == value.const_value.shape == wanted


def test_one_number_for_all_columns_becomes_one_for_each(parse: Parse, run: Run) -> None:
    model = parse(graph("Gemm(x, w, b)"), {"w": weights(1, 3, 5), "b": weights(2)})
    assert_same_function(model, run)
    assert model.graph.initializers["b"].shape == (5,)


def test_without_a_constant_weight_alpha_goes_into_a(parse: Parse, run: Run) -> None:
    text = "g (float[2,3] x) => (float[5,3] y) { y = Gemm<alpha=3.0, transA=1>(w, x) }"
    model = parse(text, {"w": weights(1, 2, 5)})
    assert_same_function(model, run)
    assert list(model.graph.node(0).attributes) == ["transA"]


def test_a_bias_times_zero_goes(parse: Parse, run: Run) -> None:
    model = parse(
        "g (float[2,3] x, float[5] c) => (float[2,5] y) { y = Gemm<beta=0.0>(x, w, c) }",
        {"w": weights(1, 3, 5)},
    )
    assert_same_function(model, run, {"x": X, "c": weights(2, 5)})
    assert len(model.graph.node(0).inputs) == 2


def test_constants_that_others_read_are_left_to_them(parse: Parse, run: Run) -> None:
    model = parse(
        "g (float[2,3] x) => (float[2,5] y, float[2,5] z)"
        " { y = Gemm<alpha=0.5, beta=3.0>(x, w, b)  z = Gemm(x, w, b) }",
        {"w": weights(1, 3, 5), "b": weights(2, 5)},
    )
    w, b = (model.graph.initializers[name].const_value for name in "wb")
    z = run(model, {"x": X})[1]
    assert_same_function(model, run)
    np.testing.assert_array_equal(run(model, {"x": X})[1], z)
    assert [model.graph.initializers[name].const_value for name in "wb"] == [w, b]
    assert [v and v.name for v in model.graph.node(0).inputs] == ["x", "w_scaled", "b_scaled"]


@pytest.mark.parametrize(
    "call",
    [
        "Gemm<alpha=1.0, beta=1.0>(x, w, b)",
        "Gemm<alpha=0.5>(x, v)",
        "Gemm<beta=0.5>(x, w, c)",
        "local.Gemm<alpha=0.5>(x, w)",
    ],
    ids=["ones", "no constant", "computed bias", "another Gemm"],
)
def test_what_cannot_be_folded_stays(call: str, parse: Parse) -> None:
    text = f"g (float[2,3] x, float[3,5] v, float[5] c) => (float[2,5] y) {{ y = {call} }}"
    model = parse(text, {"w": weights(1, 3, 5), "b": weights(2, 5)})
    attributes = dict(model.graph.node(0).attributes)
    assert not FoldGemmFactors()(model).modified
    assert dict(model.graph.node(0).attributes) == attributes


def test_branches_of_if_are_folded_with_weights_of_the_outer_graph(parse: Parse, run: Run) -> None:
    model = parse(
        """g (bool k, float[2,3] x) => (float[2,5] y) {
        y = If (k) <then_branch = a () => (float[2,5] p) { p = Gemm<alpha=2.0>(x, w, b) },
                    else_branch = e () => (float[2,5] q) { q = Gemm<beta=2.0>(x, w, b) }> }""",
        {"w": weights(1, 3, 5), "b": weights(2)},
    )
    wanted = run(model, {"x": X, "k": np.array(False)})[0]
    assert_same_function(model, run, {"x": X, "k": np.array(True)})
    got = run(model, {"x": X, "k": np.array(False)})[0]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=12 * EPS * np.abs(wanted).max())
    assert all(not node.attributes for node in model.graph.all_nodes() if node.op_type == "Gemm")


def test_a_big_weight_is_not_computed_until_it_is_read(parse: Parse) -> None:
    rows = EAGER_BYTES // (4 * 5) + 1
    text = "g (float[2,K] x) => (float[2,5] y) { y = Gemm<alpha=0.5>(x, w) }"
    model = parse(text, {"w": weights(1, rows, 5)})
    FoldGemmFactors()(model)
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.LazyTensor)
    np.testing.assert_array_equal(tensor.numpy(), weights(1, rows, 5) * np.float32(0.5))


def test_a_gemm_that_is_called_twice_keeps_one_weight_and_one_bias(parse: Parse, run: Run) -> None:
    call = "Gemm<alpha=0.5, beta=-2.0>"
    model = parse(
        f"g (float[2,3] x) => (float[2,5] y, float[2,5] z) {{ y = {call}(x, w, b)\n n = Neg(x)\n"
        f" z = {call}(n, w, b) }}",
        {"w": weights(1, 3, 5), "b": weights(2, 1)},
    )
    assert_same_function(model, run)
    assert list(model.graph.initializers) == ["w", "b"]
