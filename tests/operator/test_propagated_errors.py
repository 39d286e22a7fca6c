from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from onnxq import catalog
from onnxq.operator import Curve, Factored, Linear, Summed, Weighted, WeightSlot
from onnxq.operator.propagated_errors import PropagatedError, propagated_errors
from tests.examples import weights


def carried(text: str) -> list[PropagatedError]:
    """The errors that a node of x and z, at run time, and constants carries: w, zero, one ..."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[64, 64] x, float[64, 64] z) => (float[64, 64] y) {{ {text} }}"""
    )
    numbers = {"zero": 0.0, "one": 1.0, "infinity": np.inf}
    made = [numpy_helper.from_array(np.array(x, np.float32), n) for n, x in numbers.items()]
    model.graph.initializer.extend([numpy_helper.from_array(weights(1, 64, 64), "w"), *made])
    node = ir.from_proto(onnx.shape_inference.infer_shapes(model)).graph[0]
    operator = catalog.find(node.op_type, node.domain)
    assert operator is not None
    return list(propagated_errors(operator, node, operator.rule(node)))


@pytest.mark.parametrize(
    ("text", "names", "through"),
    [
        ("y = Add(x, z)", "xz", Linear),
        ("y = Add(x, w)", "x", Linear),
        ("y = Sqrt(x)", "x", Curve),
        ("y = MatMul(x, w)", "x", WeightSlot),
        ("y = MatMul(w, x)", "x", Weighted),
        ("y = ReduceSum(x)", "x", Summed),
        ("y = ReduceMean(x)", "x", Summed),
        ("y = Transpose(x)", "x", type(None)),
        ("y = Relu(x)", "x", type(None)),
        ("y = Mul(x, z)", "xz", Factored),
        ("y = Div(x, z)", "xz", (Factored, Curve)),
        ("y = Pow(x, one)", "x", Curve),
        ("y = Pow(x, zero)", "", type(None)),
        ("y = Mul(x, zero)", "", type(None)),
        ("y = Div(x, zero)", "", type(None)),
        ("y = Div(x, infinity)", "", type(None)),
        ("y = MatMul(x, z)", "", type(None)),
        ("y = Log(x)", "", type(None)),
        ("y = Tanh(x)", "", type(None)),
    ],
)
def test_inputs_whose_errors_come_out(
    text: str, names: str, through: type | tuple[type, ...]
) -> None:
    found = carried(text)
    assert sorted(str(step.value.name) for step in found) == list(names)
    assert all(isinstance(step.through, through) for step in found)


def test_errors_are_followed_through_three_linear_layers_and_a_bound_behind_all_of_them() -> None:
    (matmul,), (bound,), (move,) = map(
        carried, ("y = MatMul(x, w)", "y = Relu(x)", "y = Transpose(x)")
    )
    assert [matmul.is_followed(n) for n in (0, 2, 3)] == [True, True, False]
    assert [bound.is_followed(n) for n in (0, 1)] == [True, False]
    assert move.is_followed(3)
    assert bound.bounds == (0.0, float("inf"))
