from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxq.graph.passes.fuse_layer_normalization import FuseLayerNormalization
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import model_of, same
from tests.op_types import op_types

if TYPE_CHECKING:
    from tests.graph.conftest import Numbers, Parse, Run

RNG = np.random.default_rng(1)
NUMBERS: dict[str, float | Numbers] = {
    "eps": 1e-5, "one": 1.0, "two": 2.0, "three": 3.0, "half": 0.5, "minus_half": -0.5,
    "five": 5.0, "per_five": 1 / 5, "gamma": RNG.uniform(0.5, 2, 5).astype(np.float32),
    "beta": RNG.normal(size=5).astype(np.float32), "last": np.array([-1]),
    "plane": RNG.uniform(0.5, 2, (1, 4, 5)).astype(np.float32),
    "channels": RNG.uniform(0.5, 2, (3, 1, 1)).astype(np.float32),
}  # fmt: skip
MEANS = ("m = ReduceMean<axes = [3]>(x) c = Sub(x, m)",)
SQUARES = (
    "s = Pow(c, two) v = ReduceMean<axes = [-1]>(s)",
    "s = Mul(c, c) v = ReduceMean<axes = [-1]>(s)",
    "c2 = Sub(x, m) s = Pow(c2, two) v = ReduceMean<axes = [-1]>(s)",
    "s = ReduceSumSquare<axes = [-1]>(c) v = Mul(s, per_five)",
)
ROOTS = ("e = Add(v, eps) r = Sqrt(e)", "e = Add(eps, v) r = Pow(e, half)")
QUOTIENTS = (
    "n = Div(c, r)",
    "i = Reciprocal(r) n = Mul(c, i)",
    "i = Div(one, r) n = Mul(i, c)",
)
AFFINE = ("g = Mul(n, gamma) z = Add(g, beta)", "g = Mul(gamma, n) z = Add(beta, g)")
MOMENTS = (
    "i = Reciprocal(r) k = Mul(i, gamma) a = Mul(x, k) b = Mul(m, k) t = Sub(beta, b) z = Add(a, t)"
)


def fuse(model: ir.Model) -> bool:
    infer_types(model)
    return FuseLayerNormalization()(model).modified


def sized(
    parse: Parse, body: str, opset: int = 13, constants: dict[str, float | Numbers] = NUMBERS
) -> ir.Model:
    """The model on x float[N,3,4,5]: the normalized sizes have to be known."""
    model = model_of(parse, body, constants, opset)
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape = ir.Shape(["N", 3, 4, 5])
    return model


FORMS = [
    " ".join(parts)
    for parts in (
        *itertools.product(MEANS, SQUARES, ROOTS[:1], QUOTIENTS[:1], AFFINE[:1]),
        *itertools.product(MEANS, SQUARES[:1], ROOTS, QUOTIENTS, AFFINE),
        (*MEANS, SQUARES[1], "e = Add(v, eps) i = Pow(e, minus_half)", "n = Mul(c, i)", AFFINE[0]),
        (*MEANS, SQUARES[0], ROOTS[0], "i = Reciprocal(r) k = Mul(gamma, i) n = Mul(c, k)",
         "z = Add(n, beta)"),
        (*MEANS, SQUARES[0], ROOTS[0], "i = Div(gamma, r) n = Mul(c, i) z = Add(n, beta)"),
        (*MEANS, SQUARES[1], ROOTS[0], MOMENTS),
        ("q = ReduceSum(x, last) m = Div(q, five) c = Sub(x, m)", SQUARES[0], ROOTS[0],
         "z = Div(c, r)"),
        ("m = ReduceMean<axes = [-2, -1]>(x) c = Sub(x, m) s = Pow(c, two)",
         "v = ReduceMean<axes = [2, 3]>(s)", ROOTS[0], "n = Div(c, r) z = Mul(n, plane)"),
    )
]  # fmt: skip


@pytest.mark.parametrize("body", FORMS)
def test_every_way_to_write_layer_normalization_is_one_node(
    body: str, parse: Parse, run: Run
) -> None:
    model = sized(parse, body)
    assert same(model, fuse, run)
    assert op_types(model) == ["LayerNormalization"]
    assert model.opset_imports[""] == 17
    assert not FuseLayerNormalization()(model).modified


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("n = Div(c, r) z = Add(n, beta)", []),
        ("n = Div(c, r) g = Mul(n, channels) z = Add(g, beta)", ["Mul", "Add"]),
        ("n = Div(c, r) g = Mul(n, o) z = Add(g, beta)", ["Mul", "Add"]),
        ("n = Div(c, r) g = Mul(n, gamma) z = Add(g, o)", ["Add"]),
        ("n = Div(c, r) g = Mul(n, three) z = Mul(g, gamma)", ["Mul"]),
        ("extra = Div(c, r) z = Mul(extra, gamma)", ["Mul"]),
    ],
)
def test_what_the_operator_does_not_take_stays_behind_it(
    tail: str, left: list[str], parse: Parse, run: Run
) -> None:
    model = sized(parse, f"{MEANS[0]} {SQUARES[0]} {ROOTS[0]} {tail}")
    assert same(model, fuse, run)
    assert op_types(model) == ["LayerNormalization", *left]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("n = Div(x, r) z = Mul(n, gamma)", ["RMSNormalization"]),
        ("i = Reciprocal(r) n = Mul(x, i) z = Mul(gamma, n)", ["RMSNormalization"]),
        ("z = Div(x, r)", ["RMSNormalization"]),
        ("n = Div(x, r) z = Add(n, beta)", ["RMSNormalization", "Add"]),
    ],
)
def test_the_same_without_the_mean_is_rms_normalization(
    body: str, wanted: list[str], parse: Parse, run: Run
) -> None:
    head = f"s = Pow(x, two) v = ReduceMean(s, last) {ROOTS[0]}"
    model = sized(parse, f"{head} {body}", opset=18)
    assert same(model, fuse, run)
    assert op_types(model) == wanted
    assert model.opset_imports[""] == 23


CENTRED, SQUARE, ROOT = MEANS[0], SQUARES[0], ROOTS[0]


@pytest.mark.parametrize(
    "body",
    [
        "m = ReduceMean<axes = [1]>(x) c = Sub(x, m) s = Pow(c, two) v = ReduceMean<axes = [1]>(s)"
        f" {ROOT} z = Div(c, r)",
        f"{CENTRED} s = Pow(c, two) v = ReduceMean<axes = [1, 3]>(s) {ROOT} z = Div(c, r)",
        f"{CENTRED} s = Pow(c, three) v = ReduceMean<axes = [-1]>(s) {ROOT} z = Div(c, r)",
        f"{CENTRED} s = Mul(c, x) v = ReduceMean<axes = [-1]>(s) {ROOT} z = Div(c, r)",
        f"{CENTRED} {SQUARE} r = Sqrt(v) e = Add(r, eps) z = Div(c, e)",
        f"{CENTRED} {SQUARE} e = Add(v, gamma) r = Sqrt(e) z = Div(c, r)",
        f"{CENTRED} {SQUARE} {ROOT} z = Div(r, c)",
        f"{CENTRED} {SQUARE} {ROOT} z = Div(o, r)",
        f"{CENTRED} {SQUARE} {ROOT} z = Div(c, r) extra = Neg(r)",
        f"{CENTRED} s = ReduceSumSquare<axes = [-1]>(c) v = Mul(s, half) {ROOT} z = Div(c, r)",
    ],
    ids=["channels", "other axes", "cube", "no square", "eps outside", "eps of many", "upside down",
         "other numerator", "root is read", "no mean"],
)  # fmt: skip
def test_what_is_nearly_one_stays(body: str, parse: Parse) -> None:
    model = sized(parse, body)
    before = op_types(model)
    assert not fuse(model)
    assert op_types(model) == before


@pytest.mark.parametrize("noop", [0, 1])
def test_a_mean_over_axes_that_are_not_named_stays(noop: int, parse: Parse) -> None:
    mean = f"s = Mul(x, x) v = ReduceMean<noop_with_empty_axes = {noop}>(s, none)"
    numbers = {**NUMBERS, "none": np.array([], np.int64)}
    model = sized(parse, f"{mean} {ROOT} z = Div(x, r)", 18, numbers)
    assert not fuse(model)


@pytest.mark.parametrize("extra", ["extra = Sub(m, o)", "extra = Sub(c, o)"])
def test_a_mean_that_is_read_elsewhere_leaves_the_root_mean_square_of_the_rest(
    extra: str, parse: Parse, run: Run
) -> None:
    model = sized(parse, f"{CENTRED} {SQUARE} {ROOT} z = Div(c, r) {extra}")
    assert same(model, fuse, run)
    assert op_types(model) == ["ReduceMean", "Sub", "RMSNormalization", "Sub"]


def test_sizes_that_are_not_known_leave_it_as_it_is(parse: Parse) -> None:
    model = model_of(parse, f"{CENTRED} {SQUARE} {ROOT} z = Div(c, r)", NUMBERS, 13)
    assert not fuse(model)


AXES = st.sampled_from([[3], [2, 3], [1, 2, 3], [1], [2], [1, 2]])
SHAPES = st.sampled_from(
    [None, (), (5,), (4, 5), (4, 1), (3, 1, 1), (3, 4, 5), (1, 3, 4, 5), (1, 1, 1, 1)]
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # both only hold a function
)
@given(
    axes=AXES,
    others=AXES,
    square=st.sampled_from(["s = Pow(c, two)", "s = Mul(c, c)", "c2 = Sub(x, m) s = Mul(c2, c)"]),
    quotient=st.sampled_from([*QUOTIENTS, "n = Div(x, r)", "i = Reciprocal(r) n = Mul(i, x)"]),
    factor=SHAPES,
    summand=SHAPES,
    centred=st.booleans(),
)
def test_whatever_matches_computes_the_same(
    parse: Parse,
    run: Run,
    axes: list[int],
    others: list[int],
    square: str,
    quotient: str,
    factor: tuple[int, ...] | None,
    summand: tuple[int, ...] | None,
    centred: bool,
) -> None:
    mean = f"m = ReduceMean<axes = {axes}>(x)" if centred else "m = Mul(x, zero)"
    body = (
        f"{mean} c = Sub(x, m) {square} v = ReduceMean<axes = {others}>(s) "
        f"{ROOT} {quotient} "
        f"{'g = Identity(n)' if factor is None else 'g = Mul(n, factor)'} "
        f"{'z = Identity(g)' if summand is None else 'z = Add(g, summand)'}"
    )
    constants = {**NUMBERS, "zero": 0.0}
    for name, shape in (("factor", factor), ("summand", summand)):
        constants[name] = RNG.uniform(0.5, 2, shape or ()).astype(np.float32)
    model = sized(parse, body, constants=constants)
    assert same(model, fuse, run)
    takes_centred = not quotient.endswith(("Div(x, r)", "Mul(i, x)"))
    if centred and axes == others and axes[-1] == 3 and takes_centred:
        assert "LayerNormalization" in op_types(model)
    else:
        assert "LayerNormalization" not in op_types(model)
