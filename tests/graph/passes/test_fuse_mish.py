from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.graph.passes.fuse_activations import FuseMish
from onnxq.graph.types import infer_types
from tests.graph.passes.spelled import model_of, same
from tests.op_types import op_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Parse, Run


def fuse(model: ir.Model) -> bool:
    infer_types(model)
    return FuseMish()(model).modified


@pytest.mark.parametrize("product", ["z = Mul(x, t)", "z = Mul(t, x)"])
def test_three_nodes_become_one_of_the_same_value(product: str, parse: Parse, run: Run) -> None:
    body = f"s = Softplus(x) t = Tanh(s) {product}"
    model = model_of(parse, body, {})
    infer_types(model)
    assert same(model, FuseMish(), run)
    assert op_types(model) == ["Mish"]
    assert not fuse(model)


@pytest.mark.parametrize(
    "body",
    [
        "s = Softplus(x) t = Tanh(s) z = Mul(o, t)",  # a gate of something else
        "s = Softplus(x) t = Tanh(s) z = Mul(x, t) extra = Neg(s)",
        "s = Softplus(x) t = Sigmoid(s) z = Mul(x, t)",
        "s = Softplus(x) t = Tanh(s) z = Add(x, t)",
    ],
)
def test_what_is_no_mish_stays(body: str, parse: Parse) -> None:
    assert not fuse(model_of(parse, body, {}))
