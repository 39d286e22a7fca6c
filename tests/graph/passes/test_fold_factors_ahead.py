from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.fold_factors_ahead import FoldFactorsAhead
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import same
from tests.op_types import op_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Parse, Run

RNG = np.random.default_rng(0)
CONSTANTS = {
    "w": RNG.normal(size=(4, 3, 3, 3)), "v": RNG.normal(size=(5, 3, 1, 1)),
    "grouped": RNG.normal(size=(6, 1, 3, 3)), "turned": RNG.normal(size=(3, 4, 2, 2)),
    "b": RNG.normal(size=4), "k": RNG.normal(size=(6, 5)), "two": np.array(2.0),
    "minus": np.array([-0.7]), "zero": np.array(0.0), "channels": RNG.uniform(0.5, 2, (3, 1, 1)),
}  # fmt: skip
PADDED = "Conv<pads = [1,1,1,1]>({}, w)"


def model_of(parse: Parse, body: str) -> ir.Model:
    outputs = ", ".join(name for name in ("z", "extra") if f"{name} =" in body)
    read = {word for word in CONSTANTS if any(f"{word}{end}" in body for end in (",", ")", " "))}
    weights: Feeds = {n: CONSTANTS[n].astype(np.float32) for n in read}
    model = parse(f"g (float[2,3,6,6] x) => ({outputs}) {{ {body} }}", weights, 17)
    UniqueNames()(model)
    infer_types(model)
    return model


def feeds() -> Feeds:
    return {"x": RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)}


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (f"m = Mul(x, two) z = {PADDED.format('m')}", ["Conv"]),
        ("m = Div(x, minus) z = ConvTranspose(m, turned)", ["ConvTranspose"]),
        ("m = Mul(minus, x) z = MatMul(m, k)", ["MatMul"]),
        ("m = Mul(minus, x) f = Flatten<axis = 3>(m) n = Mul(f, two) z = Gemm(n, k)",
         ["Mul", "Flatten", "Gemm"]),
        (f"m = Mul(x, two) a = Add(m, minus) z = {PADDED.format('a')}", ["Add", "Conv"]),
        (f"m = Mul(x, two) a = Add(channels, m) z = {PADDED.format('a')}", ["Add", "Conv"]),
        ("m = Mul(x, two) a = Add(m, minus) z = Conv(a, w, b)", ["Conv"]),
        ("a = Sub(x, two) z = Conv<group = 3>(a, grouped)", ["Conv"]),
        ("m = Mul(x, two) a = Add(m, minus) z = Conv(a, w, b) extra = Conv(a, v)",
         ["Conv", "Conv"]),
        (f"m = Mul(x, two) a = Add(m, minus) z = Conv(a, v) extra = {PADDED.format('a')}",
         ["Add", "Conv", "Conv"]),
    ],
)  # fmt: skip
def test_factors_and_summands_go_into_all_who_read_them(
    body: str, left: list[str], parse: Parse, run: Run
) -> None:
    model = model_of(parse, body)
    assert same(model, FoldFactorsAhead(), run, feeds())
    assert op_types(model) == left
    assert not FoldFactorsAhead()(model).modified


@pytest.mark.parametrize(
    "body",
    [
        f"m = Mul(x, zero) z = {PADDED.format('m')}",
        f"m = Mul(x, channels) z = {PADDED.format('m')}",
        f"m = Add(x, two) z = {PADDED.format('m')}",
        f"extra = Mul(x, two) z = {PADDED.format('extra')}",
        f"m = Mul(x, two) z = {PADDED.format('m')} extra = Relu(m)",
        f"m = Mul(x, two) a = Add(m, x) z = {PADDED.format('a')}",
        "a = Sub(two, x) z = Conv(a, v)",
        "a = Add(x, two) z = MatMul(a, k)",
    ],
)
def test_what_not_all_of_them_can_take_stays(body: str, parse: Parse) -> None:
    model = model_of(parse, body)
    before = op_types(model)
    assert not FoldFactorsAhead()(model).modified
    assert op_types(model) == before


def test_a_weight_that_others_read_is_left_to_them(parse: Parse, run: Run) -> None:
    model = model_of(parse, "m = Mul(x, two) c = Conv(m, v) d = Conv(x, v) z = Add(c, d)")
    assert same(model, FoldFactorsAhead(), run, feeds())
    assert op_types(model) == ["Conv", "Conv", "Add"]
