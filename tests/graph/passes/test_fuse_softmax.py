from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.passes.fuse_softmax import FuseSoftmax
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import model_of, same
from tests.op_types import op_types

if TYPE_CHECKING:
    from tests.graph.conftest import Numbers, Parse, Run

CONSTANTS: dict[str, float | Numbers] = {
    "same": np.array([-1, 3, 4, 5]), "flat": np.array([-1, 3, 20, 1]), "last": np.array([-1]),
    "second": np.array([1]), "known": np.array([2, 3, 4, 5]), "two_rests": np.array([3, 3, 4, 5]),
}  # fmt: skip
SHAPE = "h = Shape(x)"
FLAT = "f = Flatten<axis = 3>(x) s = Softmax(f)"
SHIFTED = "m = ReduceMax<axes = [-1]>(x) d = Sub(x, m) e = Exp(d)"


def fuse(model: ir.Model) -> bool:
    infer_types(model)
    return FuseSoftmax()(model).modified


def sized(parse: Parse, body: str) -> ir.Model:
    """The model on x float[N,3,4,5]."""
    model = model_of(parse, body, CONSTANTS, 13)
    model.graph.inputs[0].shape = ir.Shape(["N", 3, 4, 5])
    return model


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        (f"{SHAPE} {FLAT} z = Reshape(s, h)", -1),
        (f"{FLAT} z = Reshape(s, same)", -1),
        (f"{SHAPE} f = Flatten<axis = -1>(x) s = Softmax<axis = 1>(f) z = Reshape(s, h)", -1),
        (f"{SHIFTED} t = ReduceSum(e, last) z = Div(e, t)", -1),
        ("m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) t = ReduceSum(e, second)"
         " z = Div(e, t)", -3),
    ],
)  # fmt: skip
def test_every_way_to_write_softmax_is_one_node(
    body: str, axis: int, parse: Parse, run: Run
) -> None:
    model = sized(parse, body)
    assert same(model, fuse, run)
    assert op_types(model) == ["Softmax"]
    assert model.graph.node(0).attributes.get_int("axis") == axis
    assert not FuseSoftmax()(model).modified


def test_axes_of_one_element_behind_the_axis_do_not_matter(parse: Parse, run: Run) -> None:
    model = parse(
        """g (float[N,6,1,1] x) => (float[N,6,1,1] z) {
        h = Shape(x) f = Flatten(x) s = Softmax(f) z = Reshape(s, h) }""",
        opset=13,
    )
    feeds = {"x": np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6, 1, 1)}
    assert same(model, fuse, run, feeds)
    assert op_types(model) == ["Softmax"]
    assert model.graph.node(0).attributes.get_int("axis") == -3


def test_the_shape_may_have_other_readers(parse: Parse, run: Run) -> None:
    model = sized(parse, f"{SHAPE} {FLAT} r = Reshape(s, h) c = Cast<to = 1>(h) z = Expand(r, h)")
    assert same(model, fuse, run)
    assert op_types(model) == ["Shape", "Softmax", "Expand"]


@pytest.mark.parametrize(
    "body",
    [
        f"{SHAPE} f = Flatten<axis = 2>(x) s = Softmax(f) z = Reshape(s, h)",
        f"{SHAPE} f = Flatten<axis = 3>(x) s = Softmax<axis = 0>(f) z = Reshape(s, h)",
        f"h = Shape(o) {FLAT} z = Reshape(s, h)",
        f"{FLAT} z = Reshape(s, flat)",
        f"{FLAT} z = Reshape(s, known)",
        f"{SHAPE} {FLAT} z = Reshape(s, h) extra = Neg(s)",
        f"{SHIFTED} t = ReduceSum(e, second) z = Div(e, t)",
        f"{SHIFTED} t = ReduceSum(e, last) z = Div(t, e)",
        f"{SHIFTED} t = ReduceSum(e, last) z = Div(e, t) extra = Log(t)",
        "m = ReduceMax<axes = [-1]>(o) d = Sub(x, m) e = Exp(d) t = ReduceSum(e, last)"
        " z = Div(e, t)",
        "e = Exp(x) t = ReduceSum(e, last) z = Div(e, t)",
    ],
)  # fmt: skip
def test_what_is_nearly_one_stays(body: str, parse: Parse) -> None:
    model = sized(parse, body)
    before = op_types(model)
    assert not fuse(model)
    assert op_types(model) == before
