from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.passes.float32 import ConvertToFloat32
from onnxq.graph.types import infer_types
from tests.examples import tensor_of

if TYPE_CHECKING:
    from tests.graph.conftest import Parse, Run

HALF = ir.DataType.FLOAT16


def test_weights_and_casts_become_float32_between_float16_doors(parse: Parse, run: Run) -> None:
    w = np.array([0.1, -65504, 6e-8], np.float16)
    model = parse(
        "g (float16[3] x, float[3] z) => (float16[3] y) {"
        " a = Add(x, w) b = Cast<to=10>(z) y = Add(a, b) }",
        {"w": w},
    )
    assert ConvertToFloat32()(model).modified
    assert tensor_of(model.graph.initializers["w"]).numpy().dtype == np.float32
    x = np.array([1, 2, 3], np.float16)
    z = np.array([1e-4, 65504, 0], np.float32)
    (y,) = run(model, {"x": x, "z": z})
    assert y.dtype == np.float16
    exact = x.astype(np.float32) + w.astype(np.float32) + z
    np.testing.assert_array_equal(y, exact.astype(np.float16))
    assert [n.op_type for n in model.graph] == ["Cast", "Add", "Cast", "Add", "Cast"]
    assert not ConvertToFloat32()(model).modified


def test_casts_that_a_model_has_at_its_doors_are_its_doors(parse: Parse) -> None:
    model = parse(
        "g (float16[3] x) => (float16[3] y) { a = Cast<to=1>(x) b = Exp(a) y = Cast<to=10>(b) }"
    )
    assert not ConvertToFloat32()(model).modified


def test_an_inner_result_that_is_an_output_too_has_one_cast(parse: Parse, run: Run) -> None:
    model = parse("g (float16[2] x) => (float16[2] y, float16[2] z) { y = Neg(x) z = Mul(y, y) }")
    ConvertToFloat32()(model)
    assert [n.op_type for n in model.graph] == ["Cast", "Neg", "Mul", "Cast", "Cast"]
    y, z = run(model, {"x": np.array([1, 300], np.float16)})
    assert (y.tolist(), z.tolist()) == ([-1, -300], [1, np.inf])
    assert {y.dtype, z.dtype} == {np.dtype(np.float16)}


def test_an_input_that_is_an_output_stays_as_it_is(parse: Parse, run: Run) -> None:
    model = parse("g (float16[2] x) => (float16[2] y, float16[2] x) { y = Neg(x) }")
    ConvertToFloat32()(model)
    y, x = run(model, {"x": np.array([1, 2], np.float16)})
    assert (y.tolist(), x.tolist()) == ([-1, -2], [1, 2])
    assert {y.dtype, x.dtype} == {np.dtype(np.float16)}


def test_sequences_hold_float32_then(parse: Parse, run: Run) -> None:
    model = parse(
        "g (float16[4] x) => (float16[2] y) {"
        " s = SplitToSequence(x, two) e = SequenceEmpty<dtype = 10>()"
        " a = SequenceAt(s, one) t = SequenceInsert(e, a) b = SequenceAt(t, zero) y = Neg(b) }",
        {"two": np.array(2), "one": np.array(1), "zero": np.array(0)},
    )
    infer_types(model)
    ConvertToFloat32()(model)
    assert not [v for n in model.graph for v in n.outputs[:1] if v.dtype == HALF and v.name != "y"]
    (y,) = run(model, {"x": np.array([1, 2, 3, 4], np.float16)})
    assert y.tolist() == [-3, -4]


def test_branches_and_constants_in_attributes_are_converted(parse: Parse) -> None:
    model = parse(
        """g (bool c, float16[2] x) => (float16[2] y) {
        y = If(c) <then_branch = t () => (float16[2] p) { k = Constant<value = float16[2] {1, 2}>()
              p = Add(x, k) },
            else_branch = e () => (float16[2] q) { q = Neg(x) }> }"""
    )
    ConvertToFloat32()(model)
    branch = next(n for n in model.graph if n.op_type == "If").attributes["then_branch"].as_graph()
    assert branch.node(0).attributes["value"].as_tensor().dtype == ir.DataType.FLOAT
    assert branch.outputs[0].dtype == ir.DataType.FLOAT
    assert model.graph.outputs[0].dtype == HALF


def test_a_shared_tensor_and_type_of_the_original_stay_float16(parse: Parse) -> None:
    model = parse(
        "g (float16[2] x) => (float16[2] y) { y = Add(x, w) }", {"w": np.ones(2, np.float16)}
    )
    copy = model.clone()
    ConvertToFloat32()(copy)
    assert tensor_of(model.graph.initializers["w"]).dtype == HALF
    assert {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)} == {HALF}


def test_a_float32_model_is_left_alone(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Cast<to=1>(x) }")
    assert not ConvertToFloat32()(model).modified
