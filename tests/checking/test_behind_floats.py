from __future__ import annotations

import onnx
import onnx_ir as ir

from onnxq.checking.machines import BehindFloats, behind_floats

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
CONSTANTS = "<float s = {0.5}, uint8 z = {3}, bool yes = {1}>"


def found(
    body: str,
    head: str = "(float[2,2] x, uint8[2,2] c) => (float[2,2] y)",
    feedback: dict[str, str] | None = None,
) -> BehindFloats:
    text = f"{HEADER} g {head} {CONSTANTS} {{ {body} }}"
    return behind_floats(ir.serde.deserialize_model(onnx.parser.parse_model(text)), feedback)


def test_what_moves_or_bounds_floats_changes_nothing() -> None:
    body = "d = DequantizeLinear(c, s, z) r = Relu(d) y = Transpose(r)"
    assert found(body) == BehindFloats({}, (), ())


def test_outputs_behind_floats_leave_the_integers_before_them_alone() -> None:
    body = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Softmax(d)"
    assert found(body) == BehindFloats({"Softmax": 1}, (), ("y",))


def test_integers_behind_floats_are_named() -> None:
    body = "[a] t = Tanh(x) [b] q = QuantizeLinear(t, s, z) [c] m = Identity(q) "
    body += "[d] y = DequantizeLinear(m, s, z)"
    assert found(body) == BehindFloats({"Tanh": 1}, ("b", "c"), ("y",))


def test_matmuls_of_integers_that_end_in_floats_round_but_are_not_behind() -> None:
    made = found("[p] i = Identity(c) [t] y = Erf(x)")
    assert made == BehindFloats({"Erf": 1}, (), ("y",))


def test_a_body_counts_as_a_whole() -> None:
    branch = "{b} (float[2,2] {o}) => (float[2,2] {o}) {{ t = Exp(x) [inner] q = QuantizeLinear"
    branch += "(t, s, z) {o} = DequantizeLinear(q, s, z) }}"
    branches = [branch.format(b=b, o=o).replace(f"(float[2,2] {o}) =>", "() =>") for b, o in
                (("one", "p"), ("two", "r"))]  # fmt: skip
    body = f"[if] y = If(yes) <then_branch = {branches[0]}, else_branch = {branches[1]}>"
    made = found(body)
    assert made.floats == {"Exp": 2}
    assert made.integers == ("inner", "inner")
    assert made.outputs == ("y",)


def test_state_that_goes_round_brings_floats_to_the_front() -> None:
    head = "(float[2,2] x, float[2,2] h) => (float[2,2] y, float[2,2] n)"
    body = "[q] q = QuantizeLinear(h, s, z) y = DequantizeLinear(q, s, z) n = Tanh(x)"
    assert found(body, head) == BehindFloats({"Tanh": 1}, (), ("n",))
    assert found(body, head, {"n": "h"}) == BehindFloats({"Tanh": 1}, ("q",), ("y", "n"))
