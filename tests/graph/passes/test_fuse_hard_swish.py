from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.canonical import canonicalize, canonicalize_module
from onnxq.graph.passes.fuse_activations import FuseHardSwish
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import model_of, same
from tests.op_types import op_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Numbers, Parse, Run

NUMBERS: dict[str, float | Numbers] = {
    "zero": 0.0, "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "sixth": 1 / 6,
    "fifth": 0.2, "minus": -3.0, "seven": 7.0, "deep": np.full((1, 1, 1, 1), 6, np.float32),
    "deeper": np.full((1,) * 5, 6, np.float32), "channels": np.full((3, 1, 1), 6, np.float32),
}  # fmt: skip
SHIFTED = ("a = Add(x, three)", "a = Add(three, x)", "a = Sub(x, minus)")
UP_TO_SIX = (
    "c = Clip(a, zero, six)",
    "b = Relu(a) c = Min(b, six)",
    "b = Max(a, zero) c = Min(six, b)",
    "b = Min(a, six) c = Max(b, zero)",
    "b = Min(a, six) c = Relu(b)",
)
UP_TO_ONE = (
    "g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
    "a = Div(x, six) b = Add(a, half) g = Clip(b, zero, one)",
    "a = Add(x, three) b = Mul(a, sixth) g = Clip(b, zero, one)",
)
PRODUCTS = (
    "m = Mul(x, c) z = Div(m, six)",
    "m = Mul(c, x) z = Mul(m, sixth)",
    "m = Mul(c, x) z = Div(m, deep)",
    "m = Div(x, six) z = Mul(m, c)",
    "m = Mul(c, sixth) z = Mul(x, m)",
    "m = Div(x, two) n = Div(c, three) z = Mul(n, m)",
)


def fuse(model: ir.Model) -> bool:
    infer_types(model)
    return FuseHardSwish()(model).modified


@pytest.mark.parametrize(
    "body",
    [
        *(" ".join(parts) for parts in itertools.product(SHIFTED[:1], UP_TO_SIX, PRODUCTS)),
        *(" ".join(parts) for parts in itertools.product(SHIFTED[1:], UP_TO_SIX[:1], PRODUCTS[:1])),
        *(f"{gate} z = Mul(g, x)" for gate in UP_TO_ONE),
    ],
)
def test_every_way_to_write_hard_swish_is_one_node(body: str, parse: Parse, run: Run) -> None:
    model = model_of(parse, body, NUMBERS)
    assert same(model, fuse, run)
    assert op_types(model) == ["HardSwish"]
    assert model.graph.outputs[0].name == "z"
    assert not FuseHardSwish()(model).modified


@pytest.mark.parametrize(
    "body", [*UP_TO_ONE[1:], *(f"{SHIFTED[0]} {c} g = Div(c, six)" for c in UP_TO_SIX)]
)
def test_the_gate_of_another_tensor_is_a_hard_sigmoid(body: str, parse: Parse, run: Run) -> None:
    model = model_of(parse, f"{body} z = Mul(o, g)", NUMBERS)
    assert same(model, fuse, run)
    assert op_types(model) == ["HardSigmoid", "Mul"]
    assert not FuseHardSwish()(model).modified


GATE = "a = Add(x, three) c = Clip(a, zero, six)"


@pytest.mark.parametrize(
    "body",
    [
        f"{GATE} m = Mul(x, c) z = Div(m, seven)",
        f"{GATE} z = Mul(x, c)",
        f"{GATE} m = Mul(o, c) z = Div(m, six)",
        f"{GATE} m = Mul(x, c) z = Div(m, channels)",
        f"{GATE} m = Mul(x, c) z = Div(six, m)",
        f"{GATE} m = Mul(x, c) z = Div(m, six) extra = Neg(m)",
        f"{GATE} m = Mul(x, c) z = Div(m, six) extra = Neg(a)",
        f"{GATE} extra = Mul(x, c) z = Div(extra, six)",
        f"{GATE} m = Mul(c, c) z = Div(m, six)",
        "a = Add(x, two) c = Clip(a, zero, six) m = Mul(x, c) z = Div(m, six)",
        "a = Add(x, three) c = Clip(a, half, six) m = Mul(x, c) z = Div(m, six)",
        "a = Add(x, three) c = Clip(a, , six) m = Mul(x, c) z = Div(m, six)",
        "a = Add(x, three) c = Relu(a) m = Mul(x, c) z = Div(m, six)",
        "a = Sub(three, x) c = Clip(a, zero, six) m = Mul(x, c) z = Div(m, six)",
        "g = HardSigmoid(x) z = Mul(g, x)",
        "c = Clip(x, zero, six) z = Div(c, six)",
    ],
)
def test_what_is_nearly_one_stays(body: str, parse: Parse) -> None:
    model = model_of(parse, body, NUMBERS)
    before = op_types(model)
    assert not fuse(model)
    assert op_types(model) == before


def test_a_constant_that_adds_an_axis_is_no_number(parse: Parse) -> None:
    model = model_of(parse, f"{GATE} m = Mul(x, c) z = Div(m, deeper)", NUMBERS)
    assert not fuse(model)


def test_the_opset_is_raised_to_that_of_the_operator(parse: Parse, run: Run) -> None:
    model = model_of(parse, f"{GATE} m = Mul(x, c) z = Div(m, six)", NUMBERS, opset=13)
    assert same(model, fuse, run)
    assert op_types(model) == ["HardSwish"]
    assert model.opset_imports[""] == 14


def test_the_last_node_lends_its_name_and_metadata(parse: Parse) -> None:
    model = model_of(parse, f"{GATE} m = Mul(x, c) z = Div(m, six)", NUMBERS)
    model.graph.node(3).name = "last"
    model.graph.node(3).metadata_props["scope"] = "net.act"
    assert fuse(model)
    assert [(n.name, n.metadata_props["scope"]) for n in model.graph] == [("last", "net.act")]


def test_one_behind_the_other_and_in_bodies(parse: Parse, run: Run) -> None:
    model = parse(
        """g (float[N,3] x, bool d) => (float[N,3] z) {
        a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)
        z = If(d) <then_branch = t () => (float[N,3] p) {
            a1 = Add(y, three) c1 = Clip(a1, zero, six) m1 = Mul(y, c1) p = Div(m1, six) },
                   else_branch = e () => (float[N,3] q) { q = Neg(y) }> }""",
        {n: np.array(NUMBERS[n], np.float32) for n in ("three", "zero", "six")},
    )
    feeds = {"x": np.linspace(-8, 8, 12, dtype=np.float32).reshape(4, 3), "d": np.array(True)}
    assert same(model, fuse, run, feeds)
    assert [n.op_type for n in model.graph.all_nodes()] == ["HardSwish", "If", "HardSwish", "Neg"]


def test_a_module_that_trains_keeps_the_nodes_that_it_has(parse: Parse) -> None:
    model = model_of(parse, f"{GATE} m = Mul(x, c) z = Div(m, six)", NUMBERS)
    assert "HardSwish" in op_types(canonicalize(model).model)
    assert "HardSwish" not in op_types(canonicalize_module(model).model)
