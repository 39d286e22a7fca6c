from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.passes.fold_constants import FoldConstants
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.types import infer_types
from tests.examples import tensor_of

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from tests.graph.conftest import Parse

W = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("Transpose<perm=[2,0,1]>(w)", W.transpose(2, 0, 1)),
        ("Reshape(w, shape)", W.reshape(6, 4)),
        ("Unsqueeze(w, one)", W[:, None]),
        ("Cast<to=7>(w)", W.astype(np.int64)),
        ("Mul(w, w)", W * W),
        ("Gather(w, one)", W[[1]]),
        ("Slice(w, zero, one)", W[:1]),
        ("Concat<axis=1>(w, w)", np.concatenate([W, W], 1)),
        ("Expand(one, shape)", np.ones((6, 4), np.int64)),
        ("Flatten(w)", W.reshape(2, 12)),
        ("Shape(w)", np.array([2, 3, 4])),
        ("Clip(w, two, five)", W.clip(2, 5)),
        ("Relu(w)", W),
        ("ReduceMean<keepdims=0>(w, one)", W.mean(1)),
        ("MatMul(square, square)", np.full((2, 2), 2.0, np.float32)),
    ],
)
@pytest.mark.parametrize("typed", [True, False])
def test_a_constant_of_constants_is_an_initializer(
    call: str, wanted: Array, typed: bool, parse: Parse
) -> None:
    model = parse(
        f"g (float[2] x) => (float[2] y, float z) {{ c = {call} y = Relu(x) z = local.use(c) }}",
        {
            "w": W,
            "shape": np.array([6, 4]),
            "one": np.array([1]),
            "zero": np.array([0]),
            "two": np.float32(2),
            "five": np.float32(5),
            "square": np.ones((2, 2), np.float32),
        },
    )
    if typed:
        infer_types(model)
    else:
        model.graph.node(0).outputs[0].dtype = ir.DataType.from_numpy(wanted.dtype)
    assert FoldConstants()(model).modified
    got = tensor_of(model.graph.initializers["c"]).numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    assert [n.op_type for n in model.graph] == ["Relu", "use"]
    assert not FoldConstants()(model).modified


@pytest.mark.parametrize("typed", [True, False])
def test_parts_of_a_constant_are_initializers(typed: bool, parse: Parse) -> None:
    model = parse(
        "g (float[2] x) => (float[2] y, float z) "
        "{ a, b, c = Split<axis=2>(w, sizes) y = Relu(x) z = local.use(a, c) }",
        {"w": W, "sizes": np.array([1, 1, 2])},
    )
    if typed:
        infer_types(model)
    else:
        for value in model.graph.node(0).outputs:
            value.dtype = ir.DataType.FLOAT
    assert FoldConstants()(model).modified
    got = [tensor_of(model.graph.initializers[name]).numpy() for name in "abc"]
    for part, wanted in zip(got, np.split(W, [1, 2], 2), strict=True):
        np.testing.assert_array_equal(part, wanted)
    assert [n.op_type for n in model.graph] == ["Relu", "use"]


def test_an_expand_to_a_huge_size_stays(parse: Parse) -> None:
    model = parse(
        "g (float[2] x) => (float[] y) { e = Expand(w, s) y = Add(x, e) }",
        {"w": np.ones(1, np.float32), "s": np.array([1 << 20, 1 << 20, 2])},
    )
    model.graph.node(0).outputs[0].dtype = ir.DataType.FLOAT
    assert not FoldConstants()(model).modified


def test_tiles_of_unknown_size_stay(parse: Parse) -> None:
    model = parse(
        "g (float[2] x) => (float[] y) { e = Tile(w, s) y = Add(x, e) }",
        {"w": np.ones(1, np.float32), "s": np.array([1 << 40])},
    )
    assert not FoldConstants()(model).modified


def test_chains_fold_in_one_sweep(parse: Parse) -> None:
    model = parse(
        "g (float[4,2] x) => (float[4,3] y) {"
        " a = Reshape(w, s) b = Transpose(a) c = Cast<to=1>(b) y = MatMul(x, c) }",
        {"w": np.arange(6, dtype=np.float32), "s": np.array([3, 2])},
    )
    FoldConstants()(model)
    assert [n.op_type for n in model.graph] == ["MatMul"]
    assert tensor_of(model.graph.initializers["c"]).numpy().tolist() == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    "body",
    [
        "y = Neg(x)",
        "a = RandomNormal<shape=[2]>() y = Add(a, x)",
        "y = Neg(w)",
        "a = local.f(w) y = Add(a, x)",
    ],
    ids=["no constant", "random", "graph output", "unknown operator"],
)
def test_other_nodes_stay(body: str, parse: Parse) -> None:
    model = parse(f"g (float[2] x) => (float[2] y) {{ {body} }}", {"w": np.ones(2, np.float32)})
    assert not FoldConstants()(model).modified


def test_a_weight_that_a_caller_may_override_is_not_constant(parse: Parse) -> None:
    model = parse(
        "g (float[2] x, float[2] w) => (float[2] y) { a = Neg(w) y = Add(x, a) }",
        {"w": np.ones(2, np.float32)},
    )
    assert not FoldConstants()(model).modified


def test_a_big_weight_is_transposed_only_when_it_is_read(parse: Parse) -> None:
    weight = np.arange(1 << 19, dtype=np.float32).reshape(512, 1024)
    model = parse(
        "g (float[1,1024] x) => (float[1,512] y) { t = Transpose(w) y = MatMul(x, t) }",
        {"w": weight},
    )
    infer_types(model)
    FoldConstants()(model)
    tensor = model.graph.initializers["t"].const_value
    assert isinstance(tensor, ir.LazyTensor)
    np.testing.assert_array_equal(tensor.numpy(), weight.T)


def test_constants_in_branches_fold_into_the_branch(parse: Parse) -> None:
    model = parse(
        """g (bool c, float[2] x) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { n = Neg(w) p = Add(x, n) },
                   else_branch = e () => (float[2] q) { q = Neg(x) }> }""",
        {"w": np.ones(2, np.float32)},
    )
    FoldConstants()(model)
    branch = model.graph.node(0).attributes["then_branch"].as_graph()
    assert tensor_of(branch.initializers["n"]).numpy().tolist() == [-1, -1]


def test_nodes_that_compute_the_same_share_one_initializer(parse: Parse) -> None:
    model = parse(
        """g (float[2] x) => (float y, float z, float v) {
        a = Transpose<perm=[2,0,1]>(w) b = Transpose<perm=[2,0,1]>(w) c = Transpose<perm=[2,1,0]>(w)
        d = Neg(a) e = Neg(b) y = local.use(d) z = local.use(e) v = local.use(c) }""",
        {"w": W},
    )
    infer_types(model)
    assert FoldConstants()(model).modified
    first, second, third = model.graph
    assert first.inputs[0] is second.inputs[0]
    np.testing.assert_array_equal(tensor_of(first.inputs[0]).numpy(), -W.transpose(2, 0, 1))
    np.testing.assert_array_equal(tensor_of(third.inputs[0]).numpy(), W.transpose(2, 1, 0))
    assert "b" not in model.graph.initializers
    assert "e" not in model.graph.initializers


def test_branches_that_compute_the_same_of_a_weight_share_one_initializer_beside_it(
    parse: Parse,
) -> None:
    weight = np.arange(512, dtype=np.float32).reshape(16, 32)
    model = parse(
        """g (bool c, float[2,16] x) => (float[1,2,32] y) {
        y = If(c) <
          then_branch = t () => (float[1,2,32] p) {
            zero = Constant<value_ints=[0]>() u = Unsqueeze(w, zero) p = MatMul(x, u) },
          else_branch = e () => (float[1,2,32] q) {
            null = Constant<value_ints=[0]>() v = Unsqueeze(w, null) r = MatMul(x, v) q = Neg(r) }
        > }""",
        {"w": weight},
    )
    LiftConstants()(model)
    infer_types(model)
    assert FoldConstants()(model).modified
    branches = [a.as_graph() for a in model.graph.node(0).attributes.values()]
    matmuls = [node for branch in branches for node in branch if node.op_type == "MatMul"]
    folded = matmuls[0].inputs[1]
    assert folded is matmuls[1].inputs[1]
    assert folded is model.graph.initializers["u"]
    np.testing.assert_array_equal(tensor_of(folded).numpy(), weight[None])


STANDARDIZED = """g (float[1,3,8,8] x) => (float[1,4,6,6] y) {
    flat = Reshape(w, shape) mean = ReduceMean(flat, last)
    square = Mul(flat, flat) power = ReduceMean(square, last) d = Mul(mean, mean)
    variance = Sub(power, d) deviation = Sqrt(variance) e = Sub(flat, mean) z = Div(e, deviation)
    turned = Transpose<perm=[1,0,2]>(z) back = Transpose<perm=[1,0,2]>(turned)
    weight = Reshape(back, first) y = Conv(x, weight) }"""


def test_a_standardized_weight_is_a_constant_of_its_convolution(parse: Parse) -> None:
    w = np.random.default_rng(0).normal(0, 1, (4, 3, 3, 3)).astype(np.float32)
    shapes = {"shape": np.array([1, 4, 27]), "first": np.array([4, 3, 3, 3]), "last": np.array([2])}
    model = parse(STANDARDIZED, {"w": w, **shapes})
    infer_types(model)
    FoldConstants()(model)
    (conv,) = model.graph
    flat = w.reshape(4, 27)
    wanted = (flat - flat.mean(1, keepdims=True)) / flat.std(1, keepdims=True)
    got = tensor_of(conv.inputs[1]).numpy()
    np.testing.assert_allclose(got, wanted.reshape(w.shape), rtol=1e-5)


def test_matmuls_that_take_too_long_stay(parse: Parse) -> None:
    text = "g (float[2] x) => (float[2] y, float z) { " + "".join(
        f"c{i + 1} = MatMul(c{i}, c{i}) " for i in range(4)
    )
    model = parse(
        text + "y = Relu(x) z = local.use(c4) }", {"c0": np.ones((2048, 2048), np.float32)}
    )
    infer_types(model)
    FoldConstants()(model)
    assert [n.op_type for n in model.graph] == ["MatMul", "MatMul", "Relu", "use"]
