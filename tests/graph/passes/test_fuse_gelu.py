from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.passes.fuse_activations import FuseGelu
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import model_of, same
from tests.op_types import op_types

if TYPE_CHECKING:
    from tests.graph.conftest import Numbers, Parse, Run

SLOPE = math.sqrt(2 / math.pi)
NUMBERS: dict[str, float | Numbers] = {
    "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "root": math.sqrt(2), "per_root": 0.5**0.5,
    "short_root": 1.41421, "rough_root": 1.414, "slope": SLOPE, "cubic": 0.044715, "rough": 0.0447,
    "slope_cubic": SLOPE * 0.044715, "twice": 2 * SLOPE, "fast": 1.702,
    "ones": np.ones(5, np.float32),
}  # fmt: skip
ROOTS = (
    "d = Div(x, root)",
    "d = Mul(x, per_root)",
    "d = Mul(per_root, x)",
    "d = Div(x, short_root)",
)
HALVES = (
    "p = Add(e, one) m = Mul(x, p) z = Mul(m, half)",
    "p = Add(one, e) m = Mul(p, x) z = Mul(half, m)",
    "p = Add(e, one) m = Mul(x, half) z = Mul(m, p)",
    "p = Add(e, one) m = Mul(p, half) z = Mul(x, m)",
    "p = Add(e, one) m = Mul(x, p) z = Div(m, two)",
    "p = Mul(e, half) q = Add(p, half) z = Mul(q, x)",
)
CUBES = ("c = Pow(x, three)", "s = Mul(x, x) c = Mul(s, x)", "s = Pow(x, two) c = Mul(x, s)")
ARGUMENTS = (
    *(f"{cube} k = Mul(c, cubic) a = Add(x, k) d = Mul(a, slope)" for cube in CUBES),
    "s = Mul(x, x) k = Mul(s, cubic) i = Add(k, one) l = Mul(x, slope) d = Mul(l, i)",
    "s = Mul(x, x) k = Mul(s, slope_cubic) i = Add(slope, k) d = Mul(i, x)",
)


def fuse(model: ir.Model) -> bool:
    infer_types(model)
    return FuseGelu()(model).modified


@pytest.mark.parametrize(
    ("body", "approximate"),
    [
        *(
            (f"{root} e = Erf(d) {half}", "none")
            for root, half in (*itertools.product(ROOTS, HALVES[:1]), (ROOTS[1], HALVES[2]))
        ),
        *((f"{ROOTS[0]} e = Erf(d) {half}", "none") for half in HALVES[1:]),
        *((f"{argument} e = Tanh(d) {HALVES[0]}", "tanh") for argument in ARGUMENTS),
        (f"{ARGUMENTS[0]} t = Mul(d, two) e = Sigmoid(t) z = Mul(x, e)", "tanh"),
    ],
)
def test_every_way_to_write_gelu_is_one_node(
    body: str, approximate: str, parse: Parse, run: Run
) -> None:
    model = model_of(parse, body, NUMBERS)
    assert same(model, fuse, run)
    assert op_types(model) == ["Gelu"]
    assert model.graph.node(0).attributes.get_string("approximate", "none") == approximate
    assert model.opset_imports[""] == 20
    assert not FuseGelu()(model).modified


ERF, TANH = f"{ROOTS[0]} e = Erf(d)", f"{ARGUMENTS[0]} e = Tanh(d)"


@pytest.mark.parametrize(
    "body",
    [
        f"d = Div(x, rough_root) e = Erf(d) {HALVES[0]}",
        f"{ERF} p = Add(e, one) z = Mul(x, p)",
        f"{ERF} p = Add(e, half) m = Mul(x, p) z = Mul(m, half)",
        f"{ERF} p = Add(e, one) m = Mul(o, p) z = Mul(m, half)",
        f"{ERF} p = Add(e, one) m = Mul(x, p) z = Mul(m, half) extra = Neg(m)",
        f"{ERF} extra = Add(e, one) m = Mul(x, extra) z = Mul(m, half)",
        f"{ERF} p = Add(e, ones) m = Mul(x, p) z = Mul(m, half)",
        f"{TANH.replace('cubic', 'rough')} {HALVES[0]}",
        f"s = Mul(x, x) k = Mul(s, cubic) a = Add(x, k) d = Mul(a, slope) e = Tanh(d) {HALVES[0]}",
        "s = Mul(x, fast) e = Sigmoid(s) z = Mul(x, e)",
        "e = Sigmoid(x) z = Mul(x, e)",
        "e = Tanh(x) z = Mul(x, e)",
    ],
)
def test_what_is_nearly_one_stays(body: str, parse: Parse) -> None:
    model = model_of(parse, body, NUMBERS)
    before = op_types(model)
    assert not fuse(model)
    assert op_types(model) == before


def test_one_of_a_scaled_tensor_takes_the_scaled_tensor(parse: Parse, run: Run) -> None:
    gelu = f"{ERF} {HALVES[0]}".replace("x,", "y,")
    model = model_of(parse, f"y = Mul(x, half) {gelu}", NUMBERS)
    assert same(model, fuse, run)
    assert op_types(model) == ["Mul", "Gelu"]


def test_a_model_of_doubles_stays(parse: Parse) -> None:
    constants = {n: np.asarray(v, np.float64) for n, v in NUMBERS.items()}
    model = model_of(parse, f"{ERF} {HALVES[0]}", constants)
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.type = ir.TensorType(ir.DataType.DOUBLE)
    assert not fuse(model)
