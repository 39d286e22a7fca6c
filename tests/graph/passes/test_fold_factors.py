from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.canonical import canonicalize, canonicalize_module
from onnxq.graph.passes.fold_factors import FoldFactors
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import same
from tests.op_types import op_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Parse, Run

RNG = np.random.default_rng(0)
CONSTANTS = {
    "w": RNG.normal(size=(4, 3, 3, 3)), "grouped": RNG.normal(size=(6, 1, 3, 3)),
    "turned": RNG.normal(size=(3, 4, 2, 2)), "b": RNG.normal(size=4), "k": RNG.normal(size=(6, 5)),
    "kt": RNG.normal(size=(5, 6)), "kb": RNG.normal(size=5), "two": np.array(2.0),
    "minus": np.array([-0.7]), "zero": np.array(0.0), "deep": np.full((1, 1, 1, 1), 0.3),
    "channels": RNG.uniform(0.5, 2, (4, 1, 1)), "six": RNG.uniform(0.5, 2, (1, 6, 1, 1)),
    "rows": RNG.uniform(0.5, 2, (4, 1)), "columns": RNG.uniform(0.5, 2, 5),
    "height": RNG.uniform(0.5, 2, (6, 1)), "wide": RNG.uniform(0.5, 2, (4, 6, 6)),
}  # fmt: skip
IMAGE, ROWS = "float[2,3,6,6] x", "float[2,4,6] x"
PADDED = "Conv<pads = [1,1,1,1]>(x, w)"


def model_of(parse: Parse, x: str, body: str) -> ir.Model:
    outputs = "z, extra" if "extra =" in body else "z"
    read = {word for word in CONSTANTS if any(f"{word}{end}" in body for end in (",", ")", " "))}
    weights: Feeds = {n: CONSTANTS[n].astype(np.float32) for n in read}
    model = parse(f"g ({x}) => ({outputs}) {{ {body} }}", weights, 17)
    UniqueNames()(model)
    infer_types(model)
    return model


def feeds(x: str) -> Feeds:
    shape = (2, 3, 6, 6) if x == IMAGE else (2, 4, 6) if x == ROWS else (4, 6)
    return {"x": RNG.normal(size=shape).astype(np.float32)}


@pytest.mark.parametrize(
    ("x", "body", "left"),
    [
        (IMAGE, f"c = {PADDED} z = Mul(c, two)", ["Conv"]),
        (IMAGE, f"c = {PADDED} d = Mul(minus, c) z = Add(d, deep)", ["Conv"]),
        (IMAGE, "c = Conv(x, w, b) d = Div(c, channels) z = Sub(channels, d)", ["Conv"]),
        (IMAGE, "c = Conv(x, w, b) d = Sub(c, channels) z = Relu(d)", ["Conv", "Relu"]),
        (IMAGE, "c = Conv<group = 3>(x, grouped) z = Mul(c, six)", ["Conv"]),
        (IMAGE, "c = ConvTranspose(x, turned) d = Mul(c, channels) z = Add(d, two)",
         ["ConvTranspose"]),
        ("float[4,6] x", "c = Gemm(x, k, kb) d = Mul(c, columns) z = Add(columns, d)", ["Gemm"]),
        ("float[4,6] x", "c = Gemm<transB = 1>(x, kt) z = Mul(c, minus)", ["Gemm"]),
        (ROWS, "c = MatMul(x, k) z = Mul(c, two)", ["MatMul"]),
        (ROWS, "c = MatMul(x, k) d = Add(c, kb) z = Div(d, columns)", ["MatMul", "Add"]),
        (ROWS, "c = MatMul(x, k) d = Add(two, c) z = Mul(columns, d)", ["MatMul", "Add"]),
        (ROWS, "c = MatMul(x, k) d = Mul(c, two) e = Add(d, kb) z = Mul(e, minus)",
         ["MatMul", "Add"]),
    ],
)  # fmt: skip
def test_factors_and_summands_go_into_weight_and_bias(
    x: str, body: str, left: list[str], parse: Parse, run: Run
) -> None:
    model = model_of(parse, x, body)
    assert same(model, FoldFactors(), run, feeds(x))
    assert op_types(model) == left
    assert model.graph.outputs[0].name == "z"
    assert not FoldFactors()(model).modified


@pytest.mark.parametrize(
    ("x", "body"),
    [
        (IMAGE, f"c = {PADDED} z = Mul(c, height)"),
        (IMAGE, f"c = {PADDED} z = Mul(c, wide)"),
        (IMAGE, f"c = {PADDED} z = Mul(c, zero)"),
        (IMAGE, f"c = {PADDED} z = Div(two, c)"),
        (IMAGE, f"c = {PADDED} z = Mul(c, two) extra = Neg(c)"),
        (IMAGE, f"extra = {PADDED} z = Mul(extra, two)"),
        (IMAGE, f"c = {PADDED} r = Relu(c) z = Mul(r, two)"),
        (ROWS, "c = MatMul(x, k) z = Add(c, kb)"),
        (ROWS, "c = MatMul(x, k) z = Mul(c, rows)"),
        (ROWS, "c = MatMul(x, k) d = Add(c, rows) z = Mul(d, two)"),
        (ROWS, "c = MatMul(x, k) d = Add(c, c) z = Mul(d, two)"),
    ],
)
def test_what_weight_and_bias_cannot_hold_stays(x: str, body: str, parse: Parse) -> None:
    model = model_of(parse, x, body)
    before = op_types(model)
    assert not FoldFactors()(model).modified
    assert op_types(model) == before


def test_a_weight_that_others_read_is_left_to_them(parse: Parse, run: Run) -> None:
    model = model_of(parse, IMAGE, "c = Conv(x, w) d = Mul(c, two) e = Conv(x, w) z = Add(d, e)")
    assert same(model, FoldFactors(), run, feeds(IMAGE))
    assert op_types(model) == ["Conv", "Conv", "Add"]


def test_the_weights_of_a_module_stay_as_they_are(parse: Parse) -> None:
    model = model_of(parse, IMAGE, f"c = {PADDED} z = Mul(c, two)")
    assert op_types(canonicalize_module(model).model) == ["Conv", "Mul"]
    assert op_types(canonicalize(model).model) == ["Conv"]


def test_the_numbers_of_a_function_belong_to_it(parse: Parse) -> None:
    constants = "three = Constant<value = float {3}>() low = Constant<value = float {0}>()"
    constants += " high = Constant<value = float {6}>()"
    body = f"{constants} c = {PADDED} a = Add(c, three) g = Clip(a, low, high) z = Div(g, high)"
    assert op_types(canonicalize(model_of(parse, IMAGE, body)).model) == ["Conv", "HardSigmoid"]
