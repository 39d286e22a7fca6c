from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq import catalog, cross_check, targets
from onnxq.errors import NothingQuantizedError, ShapeError, UnsupportedError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Case, DynamicRule, Float, NodeCall, Precision, Rule
from onnxq.operator.examples import normal
from onnxq.operators.attention import Attention
from onnxq.operators.microsoft_attention import MicrosoftAttention
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from tests.op_types import op_types
from tests.operators import builder
from tests.operators.dynamic_builder import (
    HALF,
    PER_TENSOR,
    SYMMETRIC,
    affine,
    optimized_ops,
    quantized_case,
    run,
    samples,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.observers import ObserverSpec
    from onnxq.operator import Array, AttributeValue

OPERATOR = MicrosoftAttention()
CASES = {case.name: case for case in OPERATOR.cases()}
EACH = pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for name, case in CASES.items()]
)
SPLIT = [
    *("DynamicQuantizeLinear", "MatMulInteger", "Cast", "Mul", "Mul", "Add"),
    *("Split", "MultiHeadAttention"),
]
INTEGERS = QConfigMapping().set_global(QConfigDynamic(SYMMETRIC, Precision.DYNAMIC_INT8))
ULPS = 16 * 2.0**-23  # of the largest number: what cross_check calls rounding
STEP_AND_SCALE = 1 / 64 + 2 / 255
"""An integer of the weights, up to 64, is off by half of one, as is one of 255 of the activations,
and so is its zero point: shares of the largest value, scores by as much of the largest score."""


def rule_of(case: Case) -> DynamicRule:
    rule = OPERATOR.dynamic_rule(builder.node_of(OPERATOR, case))
    assert isinstance(rule, DynamicRule)
    return rule


def reals(arrays: list[Array]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    return [np.asarray(x, np.float64) for x in arrays]


def test_it_is_found_beside_onnxs_own_attention() -> None:
    assert isinstance(catalog.find("Attention", "com.microsoft"), MicrosoftAttention)
    assert isinstance(catalog.find("Attention"), Attention)


@EACH
def test_the_float_kernel_is_onnx_runtimes_within_rounding(case: Case) -> None:
    got = OPERATOR.float_kernel(
        NodeCall(OPERATOR.op_type, case.inputs, attributes=case.attributes or {})
    )
    for y, wanted in zip(got, builder.run_float(OPERATOR, case), strict=False):
        assert y.shape == wanted.shape
        wide, other = reals([y, wanted])
        assert np.abs(wide - other).max() <= ULPS * np.abs(other).max()


@EACH
def test_every_form_computes_what_the_reference_does(case: Case) -> None:
    for precision in rule_of(case).precisions:
        weight = HALF if precision is Precision.WEIGHT_ONLY_FLOAT16 else SYMMETRIC
        model = quantized_case(OPERATOR, case, precision, weight)
        findings = cross_check(model, samples(case))
        assert not findings.unchecked
        assert all(not node.differing and not node.problem for node in findings.nodes)
        assert all(not output.problem for output in findings.outputs)
        assert all(output.largest <= 16 for output in findings.outputs)


@EACH
def test_integers_are_near_float(case: Case) -> None:
    if Precision.DYNAMIC_INT8 not in rule_of(case).precisions:
        return
    model = quantized_case(OPERATOR, case, Precision.DYNAMIC_INT8)
    plain = ["DynamicQuantizeLinear", "QAttention"]
    assert op_types(model) == (SPLIT if rule_of(case).measured_as else plain)
    wanted, got = reals(builder.run_float(OPERATOR, case)), reals(run(model, samples(case)))
    for y, other in zip(got, wanted, strict=True):
        assert 0 < np.abs(y - other).max() < 8 * STEP_AND_SCALE * np.abs(other).max()


@pytest.mark.parametrize(
    "weight",
    [PER_TENSOR, affine("int8"), affine("uint8"), NarrowRangeObserver.with_args()],
    ids=str,
)
def test_scales_and_zero_points_per_column_or_one(weight: ObserverSpec) -> None:
    case = CASES["mask of keys"]
    model = quantized_case(OPERATOR, case, Precision.DYNAMIC_INT8, weight)
    findings = cross_check(model, samples(case))
    assert [node.op_type for node in findings.nodes] == ["DynamicQuantizeLinear", "QAttention"]
    assert all(not node.differing for node in findings.nodes)


def test_weights_stay_within_what_the_target_sums_exactly() -> None:
    model = builder.float_model(OPERATOR, CASES["plain"])
    for target, limit in (("portable", 64), ("x86-vnni", 127)):
        made = onnxq.quantize_dynamic(model, INTEGERS, target=target)
        (integers,) = (
            v.const_value.numpy()
            for v in made.graph.initializers.values()
            if v.const_value is not None and v.dtype == ir.DataType.INT8 and len(v.shape or ()) == 2
        )
        assert np.abs(integers.astype(np.int32)).max() == limit


@pytest.mark.parametrize(
    "precision", [Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16]
)
def test_an_absent_bias_which_ends_onnx_runtimes_process_in_float_becomes_0(
    precision: Precision,
) -> None:
    x, w, _ = CASES["plain"].inputs
    bare = Case("no bias", (x, w), (1,), {"num_heads": 2})
    zeros = Case("zeros", (x, w, np.zeros(18, np.float32)), (1, 2), {"num_heads": 2})
    assert isinstance(OPERATOR.dynamic_rule(builder.node_of(OPERATOR, bare)), Float)
    weight = HALF if precision is Precision.WEIGHT_ONLY_FLOAT16 else SYMMETRIC
    got, wanted = (
        run(quantized_case(OPERATOR, case, precision, weight), samples(case))[0]
        for case in (bare, zeros)
    )
    assert np.array_equal(got, wanted)


def changed(name: str, *more: Array | None, outputs: int = 1, **attributes: AttributeValue) -> Case:
    """A case with other inputs behind its bias, and more attributes."""
    case = CASES[name]
    given = dict(case.attributes or {}) | attributes
    inputs = (*case.inputs[:3], *more) if more else case.inputs
    return dataclasses.replace(case, inputs=inputs, attributes=given, outputs=outputs)


SCORES = normal(1, 2, 4, 4)
ONES = np.ones((2, 4), np.int32)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (changed("plain", do_rotary=1), "turns positions"),
        (changed("plain", past_present_share_buffer=1), "share a buffer"),
        (changed("plain", num_heads=4), "18 columns are no multiple of 3 times 4 heads"),
        (changed("plain", qkv_hidden_sizes=[4, 4, 8]), "not the sum of qkv_hidden_sizes"),
        (changed("plain", None, None, SCORES, outputs=2), "past and present in other shapes"),
        (changed("plain", np.array([4, 2], np.int32), None, SCORES), "no masks but"),
        (changed("plain", ONES[:, :1], None, SCORES), "no masks but"),
    ],
)
def test_what_no_integer_kernel_has_is_stored_with_the_reason(case: Case, why: str) -> None:
    rule = rule_of(case)
    assert why in rule.missing
    assert rule.precisions == (Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16)
    model = builder.float_model(OPERATOR, case)
    _, plan = onnxq.pipeline.plan_dynamic(model, target="portable", objective="size")
    (decision,) = plan.quantized.values()
    assert decision.precision is Precision.WEIGHT_ONLY
    assert why in decision.how.words


@pytest.mark.parametrize("keys", ["tokens", 4])
def test_a_mask_of_as_many_keys_as_rows_is_no_broadcast(keys: str | int) -> None:
    """A mask of (batch, 1) is none to Attention; MultiHeadAttention knows no such rule."""
    node = builder.node_of(OPERATOR, changed("plain", ONES, None, SCORES))
    x, mask = node.inputs[0], node.inputs[3]
    assert x is not None
    assert mask is not None
    x.shape, mask.shape = ir.Shape(["batch", keys, 8]), ir.Shape(["batch", keys])
    assert not getattr(OPERATOR.dynamic_rule(node), "missing", "?")
    mask.shape = ir.Shape(["batch", None])
    assert "no masks but" in getattr(OPERATOR.dynamic_rule(node), "missing", "")


def test_a_matmul_split_off_is_fused_with_its_bias(tmp_path: Path) -> None:
    model = quantized_case(OPERATOR, CASES["bias of scores"], Precision.DYNAMIC_INT8)
    found = optimized_ops(model, tmp_path)
    assert found == ["DynamicQuantizeMatMul", "MultiHeadAttention", "Split"]


@pytest.mark.parametrize(
    ("constants", "shape", "why"),
    [((2,), (8, 18), "computed at run time"), ((1, 2), (8, 18, 1), "its weight has shape")],
)
def test_a_weight_that_cannot_be_stored_stays_in_float(
    constants: tuple[int, ...], shape: tuple[int, ...], why: str
) -> None:
    x, _, bias = CASES["plain"].inputs
    case = Case("other", (x, normal(*shape), bias), constants, {"num_heads": 2})
    rule = OPERATOR.dynamic_rule(builder.node_of(OPERATOR, case))
    assert isinstance(rule, Float)
    assert why in rule.reason.words


def test_static_quantization_points_to_the_dynamic_entry() -> None:
    rule: Rule | Float = OPERATOR.rule(builder.node_of(OPERATOR, CASES["plain"]))
    assert isinstance(rule, Float)
    assert "--set op:Attention=dynamic_int8" in rule.reason.words


def test_it_is_quantized_beside_a_static_part() -> None:
    mapping = QConfigMapping().set_op_type("Attention", QConfigDynamic(SYMMETRIC))
    case = CASES["plain"]
    model = builder.float_model(OPERATOR, case)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    made = onnxq.quantize(model, [samples(case)], qconfig=mapping, target=large_gains())
    assert op_types(made) == ["DynamicQuantizeLinear", "QAttention"]


def large_gains() -> targets.Target:
    return dataclasses.replace(targets.find("portable"), dynamic_speedups=())


@pytest.mark.parametrize(
    ("hidden", "rows", "fast"), [(64, 1, False), (64, 128, True), (128, 1, True)]
)
def test_speed_asks_the_measured_speedups(hidden: int, rows: int, *, fast: bool) -> None:
    x, w, bias = normal(3, rows, hidden), normal(hidden, 3 * hidden), normal(3 * hidden)
    case = Case("sized", (x, w, bias), (1, 2), {"num_heads": 2})
    model = builder.float_model(OPERATOR, case)
    _, plan = onnxq.pipeline.plan_dynamic(model, target="portable")
    assert bool(plan.quantized) == fast


def test_two_that_read_one_tensor_share_its_quantizer() -> None:
    model = ir.from_proto(builder.float_model(OPERATOR, CASES["plain"]))
    (node,) = model.graph
    again = ir.node("Attention", node.inputs, node.attributes, domain="com.microsoft", name="other")
    model.graph.append(again)
    again.outputs[0].name = "out1"
    again.outputs[0].type = node.outputs[0].type
    model.graph.outputs.append(again.outputs[0])
    made = onnxq.quantize_dynamic(model, INTEGERS, target="portable")
    assert sorted(op_types(made)) == ["DynamicQuantizeLinear", "QAttention", "QAttention"]
    weights = [v for v in made.graph.initializers.values() if v.dtype == ir.DataType.INT8]
    assert len([v for v in weights if len(v.shape or ()) == 2]) == 1


def test_weights_of_four_bits_are_multiplied_in_integers() -> None:
    case = CASES["plain"]
    weight = NarrowRangeObserver.with_args(dtype="int4", quant_max=7)
    mapping = QConfigMapping().set_global(QConfigDynamic(weight))
    made = onnxq.quantize_dynamic(builder.float_model(OPERATOR, case), mapping, objective="size")
    assert op_types(made)[-1] == "QAttention"
    assert run(made, samples(case))[0].shape == (2, 4, 6)


def test_blocks_are_refused_with_the_forms_that_it_has() -> None:
    with pytest.raises(NothingQuantizedError, match="no precision 'weight_only_groupwise'"):
        quantized_case(OPERATOR, CASES["plain"], Precision.WEIGHT_ONLY_GROUPWISE, SYMMETRIC, 16)


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"num_heads": 4}, ShapeError, "in 4 heads"),
        ({"num_heads": 2, "qkv_hidden_sizes": [6, 6, 8]}, ShapeError, "18 columns"),
        ({"num_heads": 2, "do_rotary": 1}, UnsupportedError, "do_rotary"),
    ],
)
def test_the_float_kernel_refuses_in_words(
    attributes: dict[str, AttributeValue], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        OPERATOR.float_kernel(
            NodeCall(OPERATOR.op_type, CASES["plain"].inputs, attributes=attributes)
        )
