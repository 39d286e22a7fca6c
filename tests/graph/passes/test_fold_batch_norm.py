from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.fold_batch_norm import FoldBatchNorm
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.weights import EAGER_BYTES
from tests.examples import tensor_of

if TYPE_CHECKING:
    from tests.graph.conftest import Feeds, Numbers, Parse, Run

RNG = np.random.default_rng(0)
EPS = np.finfo(np.float32).eps


def weights(shape: tuple[int, ...], channels: int, bias: tuple[int, ...] | None = None) -> Feeds:
    made = {"w": RNG.normal(size=shape).astype(np.float32)}
    made |= {n: RNG.normal(size=channels).astype(np.float32) for n in ("gamma", "beta", "mean")}
    made["var"] = RNG.uniform(0.1, 4, channels).astype(np.float32)
    if bias is not None:
        made["b"] = RNG.normal(size=bias).astype(np.float32)
    return made


CASES = {
    "conv": ("Conv(x, w)", (4, 3, 3, 3), 4, None),
    "conv with bias": ("Conv(x, w, b)", (4, 3, 3, 3), 4, (4,)),
    "grouped conv": ("Conv<group=3>(x, w)", (6, 1, 3, 3), 6, None),
    "transposed conv": ("ConvTranspose(x, w)", (3, 5, 2, 2), 5, None),
    "grouped transposed conv": ("ConvTranspose<group=3>(x, w, b)", (3, 2, 2, 2), 6, (6,)),
}


def graph(call: str, outputs: str = "float[2,C,H,W] y", x: str = "float[2,3,6,6] x") -> str:
    return (
        f"g ({x}) => ({outputs}) {{ c = {call}\n"
        " y = BatchNormalization<epsilon=0.01>(c, gamma, beta, mean, var) }"
    )


def assert_close(got: Numbers, wanted: Numbers) -> None:
    # both sum about 30 products, each rounded, in different orders
    np.testing.assert_allclose(got, wanted, rtol=0, atol=100 * EPS * np.abs(wanted).max())


@pytest.mark.parametrize("case", CASES)
def test_conv_and_batch_norm_become_one_conv_of_the_same_function(
    case: str, parse: Parse, run: Run
) -> None:
    call, shape, channels, bias = CASES[case]
    model = parse(graph(call), weights(shape, channels, bias))
    x = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    before = run(model, {"x": x})
    assert FoldBatchNorm()(model).modified
    (node,) = model.graph
    assert node.outputs[0].name == "y"
    assert_close(run(model, {"x": x})[0], before[0])
    assert not FoldBatchNorm()(model).modified


@pytest.mark.parametrize("bias", [None, (), (1,), (5,), (1, 5)])
@pytest.mark.parametrize("trans", [0, 1])
def test_gemm_folds_with_alpha_beta_and_every_bias_of_one_row(
    bias: tuple[int, ...] | None, trans: int, parse: Parse, run: Run
) -> None:
    call = f"Gemm<alpha=0.5, beta=2.0, transB={trans}>(x, w{'' if bias is None else ', b'})"
    shape = (5, 3) if trans else (3, 5)
    model = parse(graph(call, "float[2,5] y", "float[2,3] x"), weights(shape, 5, bias))
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    before = run(model, {"x": x})
    assert FoldBatchNorm()(model).modified
    assert len(model.graph) == 1
    assert_close(run(model, {"x": x})[0], before[0])


def test_names_of_own_weight_and_bias_stay(parse: Parse) -> None:
    model = parse(graph("Conv(x, w, b)"), weights((4, 3, 3, 3), 4, (4,)))
    FoldBatchNorm()(model)
    assert [v and v.name for v in model.graph.node(0).inputs] == ["x", "w", "b"]


def test_a_shared_weight_is_left_to_its_other_reader(parse: Parse, run: Run) -> None:
    model = parse(
        "g (float[2,3,6,6] x) => (float[2,4,4,4] y, float[2,4,4,4] z) { c = Conv(x, w)\n"
        " y = BatchNormalization(c, gamma, beta, mean, var)\n z = Conv(x, w) }",
        weights((4, 3, 3, 3), 4),
    )
    x = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    before = run(model, {"x": x})
    tensor = model.graph.initializers["w"].const_value
    FoldBatchNorm()(model)
    after = run(model, {"x": x})
    assert_close(after[0], before[0])
    np.testing.assert_array_equal(after[1], before[1])
    assert model.graph.initializers["w"].const_value is tensor
    assert [v and v.name for v in model.graph.node(0).inputs][:2] == ["x", "w_folded"]


TWICE = {
    "conv": ("Conv", (4, 3, 3, 3), "float[2,3,6,6] x, float[2,3,6,6] x2"),
    "transposed conv": ("ConvTranspose", (3, 4, 2, 2), "float[2,3,6,6] x, float[2,3,6,6] x2"),
    "gemm": ("Gemm", (3, 4), "float[2,3] x, float[2,3] x2"),
}


@pytest.mark.parametrize("bias", [None, (4,)])
@pytest.mark.parametrize("case", TWICE)
def test_a_module_that_is_called_twice_keeps_one_weight_and_one_bias(
    case: str, bias: tuple[int, ...] | None, parse: Parse, run: Run
) -> None:
    op, shape, inputs = TWICE[case]
    call = f"{op}(X, w{'' if bias is None else ', b'})"
    model = parse(
        f"g ({inputs}) => (float y, float z) {{ c = {call.replace('X', 'x')}\n"
        f" d = {call.replace('X', 'x2')}\n y = BatchNormalization(c, gamma, beta, mean, var)\n"
        " z = BatchNormalization(d, gamma, beta, mean, var) }",
        weights(shape, 4, bias),
    )
    model.graph.outputs[0].shape = model.graph.outputs[1].shape = None
    dims = (2, 3) if op == "Gemm" else (2, 3, 6, 6)
    feeds = {n: RNG.normal(size=dims).astype(np.float32) for n in ("x", "x2")}
    before = run(model, feeds)
    assert FoldBatchNorm()(model).modified
    first, second = model.graph
    assert first.inputs[1:] == second.inputs[1:]
    assert first.inputs[1] is model.graph.initializers["w"]
    for got, wanted in zip(run(model, feeds), before, strict=True):
        assert_close(got, wanted)
    assert not FoldBatchNorm()(model).modified


def test_one_conv_before_two_batch_norms_keeps_two_weights(parse: Parse, run: Run) -> None:
    made = weights((4, 3, 3, 3), 4)
    model = parse(
        "g (float[2,3,6,6] x) => (float[2,4,4,4] y, float[2,4,4,4] z) { c = Conv(x, w)\n"
        " d = Conv(x, w) y = BatchNormalization(c, gamma, beta, mean, var)\n"
        " z = BatchNormalization(d, beta, gamma, mean, var) }",
        made,
    )
    x = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    before = run(model, {"x": x})
    FoldBatchNorm()(model)
    for got, wanted in zip(run(model, {"x": x}), before, strict=True):
        assert_close(got, wanted)


def test_two_batch_norms_behind_a_conv_that_is_called_twice(parse: Parse, run: Run) -> None:
    model = parse(
        "g (float[2,3,6,6] x) => (float[2,4,4,4] y, float[2,4,4,4] z) { c = Conv(x, w)\n"
        " c2 = BatchNormalization(c, gamma, beta, mean, var)\n"
        " y = BatchNormalization(c2, gamma, beta, mean, var)\n d = Conv(x, w)\n"
        " d2 = BatchNormalization(d, gamma, beta, mean, var)\n"
        " z = BatchNormalization(d2, gamma, beta, mean, var) }",
        weights((4, 3, 3, 3), 4),
    )
    x = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    before = run(model, {"x": x})
    FoldBatchNorm()(model)
    first, second = model.graph
    assert first.inputs[1:] == second.inputs[1:]
    for got, wanted in zip(run(model, {"x": x}), before, strict=True):
        assert_close(got, wanted)


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mean, var) z = Relu(c)",
        "c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mean, v2) z = Relu(x)",
        "c = Conv(x, w) y, rm, rv = BatchNormalization<training_mode=1>(c, gamma, beta, mean, var)"
        " z = Relu(rm)",
        "c = Relu(x) y = BatchNormalization(c, gamma, beta, mean, var) z = Relu(x)",
    ],
    ids=["conv read elsewhere", "variance computed", "training", "no conv"],
)
def test_what_cannot_be_folded_stays(body: str, parse: Parse) -> None:
    model = parse(
        f"g (float[2,3,6,6] x, float[3] v2) => (float[2,3,N,N] y, float[] z) {{ {body} }}",
        weights((3, 3, 3, 3), 3),
    )
    before = [n.op_type for n in model.graph]
    assert not FoldBatchNorm()(model).modified
    assert [n.op_type for n in model.graph] == before


def test_a_conv_output_that_is_a_graph_output_stays(parse: Parse) -> None:
    model = parse(
        graph("Conv(x, w)", "float[2,4,4,4] c, float[2,4,4,4] y"), weights((4, 3, 3, 3), 4)
    )
    assert not FoldBatchNorm()(model).modified


def test_branches_of_if_are_folded_with_weights_of_the_outer_graph(parse: Parse, run: Run) -> None:
    model = parse(
        """g (bool k, float[2,3,6,6] x) => (float[2,4,4,4] y) {
        y = If (k) <then_branch = a () => (float[2,4,4,4] p) {
              c = Conv(x, w)  p = BatchNormalization(c, gamma, beta, mean, var) },
            else_branch = b () => (float[2,4,4,4] q) {
              d = Conv(x, w)  q = BatchNormalization(d, gamma, beta, mean, var) }> }""",
        weights((4, 3, 3, 3), 4),
    )
    x = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    before = [run(model, {"x": x, "k": np.array(k)})[0] for k in (False, True)]
    assert FoldBatchNorm()(model).modified
    assert {n.op_type for n in model.graph.all_nodes()} == {"If", "Conv"}
    UniqueNames()(model)
    for k in (False, True):
        assert_close(run(model, {"x": x, "k": np.array(k)})[0], before[k])


def test_a_big_weight_is_not_computed_until_it_is_read(parse: Parse) -> None:
    rows = EAGER_BYTES // (4 * 3) + 1
    model = parse(graph("Conv(x, w)"), weights((rows, 3, 1, 1), rows))
    kept = tensor_of(model.graph.initializers["w"]).numpy().copy()
    FoldBatchNorm()(model)
    tensor = model.graph.initializers["w"].const_value
    assert type(tensor).__name__ == "LazyTensor"
    gamma, var = (tensor_of(model.graph.initializers[n]).numpy() for n in ("gamma", "var"))
    factor = gamma / np.sqrt(var + 0.01)
    assert tensor is not None
    np.testing.assert_allclose(
        tensor.numpy()[:, 0, 0, 0], kept[:, 0, 0, 0] * factor, rtol=float(8 * EPS)
    )


def test_a_bad_variance_is_not_hidden(parse: Parse) -> None:
    made = weights((4, 3, 3, 3), 4)
    made["var"][1] = -1
    model = parse(graph("Conv(x, w)"), made)
    assert not FoldBatchNorm()(model).modified
