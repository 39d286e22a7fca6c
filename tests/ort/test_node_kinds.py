from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from onnxq.ort.node_kinds import NodeKind, count, integer_nodes

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'
INT, FLOAT = NodeKind.INTEGER, NodeKind.FLOAT
CONVERT, OTHER = NodeKind.CONVERSION, NodeKind.OTHER


def _model(body: str) -> ir.Model:
    """x float, c uint8, n int64; inner values have no types, as in what ONNX Runtime writes."""
    constants = "<float s = {0.5}, uint8 z = {3}, int8 zs = {3}, float[2,2] w = {1, 2, 3, 4}>"
    head = "g (float[2,2] x, uint8[2,2] c, int64[2] n, bool b) => (y)"
    return ir.serde.deserialize_model(
        onnx.parser.parse_model(f"{HEADER} {head} {constants} {{ {body} }}")
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Relu(x)", [FLOAT]),
        ("y = QuantizeLinear(x, s, z)", [CONVERT]),
        ("y = DequantizeLinear(c, s, z)", [CONVERT]),
        ("y = Cast<to = 1>(n)", [CONVERT]),
        ("y = Shape(x)", [OTHER]),
        ("y = Add(n, n)", [OTHER]),
        ("q = QuantizeLinear(x, s, zs) y = MaxPool<kernel_shape = [1]>(q)", [CONVERT, INT]),
        (
            "q = QuantizeLinear(x, s) t = Transpose(q) y = DequantizeLinear(t, s)",
            [CONVERT, INT, CONVERT],
        ),
        ("y = com.microsoft.QLinearSigmoid(c, s, z, s, z)", [INT]),
        ("g = com.microsoft.QGemm(c, s, z, c, s, z, , s, z) y = Flatten(g)", [INT, INT]),
        ("g = com.microsoft.QGemm(c, s, z, c, s, z) y = Flatten(g)", [INT, FLOAT]),
        ("g = com.microsoft.QLinearConcat(s, z, c, s, z) y = Flatten(g)", [INT, INT]),
        ("g = MatMulInteger(c, c) f = Cast<to = 1>(g) y = Mul(f, s)", [INT, CONVERT, FLOAT]),
        ("g = com.microsoft.MatMulIntegerToFloat(c, c, s, s) y = Exp(g)", [INT, FLOAT]),
        ("g = Where(b, c, c) y = Flatten(g)", [INT, INT]),
        ("g = ArgMax(c) y = Add(g, g)", [INT, OTHER]),
        ("y = com.microsoft.MatMulNBits<K = 2, N = 2, accuracy_level = 4>(x, c, s)", [INT]),
        ("y = com.microsoft.MatMulNBits<K = 2, N = 2>(x, c, s)", [FLOAT]),
        ("r = com.microsoft.nchwc.ReorderInput(x) y = Flatten(r)", [FLOAT, FLOAT]),
    ],
)
def test_arithmetic_follows_from_the_kernel_and_the_types(
    body: str, expected: list[NodeKind]
) -> None:
    assert [use.kind for use in integer_nodes(_model(body))] == expected


def test_nodes_in_branches_are_listed() -> None:
    branches = "then_branch = t () => (p) { p = Relu(x) }, else_branch = e () => (o) { o = Exp(x) }"
    body = f"y = If (b) <{branches}>"
    uses = {use.op_type: use.kind for use in integer_nodes(_model(body))}
    assert uses == {"If": OTHER, "Relu": FLOAT, "Exp": FLOAT}


def test_nodes_are_counted_by_type() -> None:
    uses = integer_nodes(_model("p = Relu(x) r = Relu(p) y = Exp(r)"))
    assert count(uses, NodeKind.FLOAT) == {"Relu": 2, "Exp": 1}
    assert not count(uses, NodeKind.INTEGER)
