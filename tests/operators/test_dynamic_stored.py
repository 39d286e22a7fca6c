"""Gather, Conv, ConvTranspose: weights stored as integers or float16, computed in float."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq import cross_check
from onnxq.errors import NothingQuantizedError
from onnxq.operator import Case, DynamicRule, Float, Operator, Precision
from onnxq.operator.examples import normal
from onnxq.operators.conv import Conv
from onnxq.operators.conv_transpose import ConvTranspose
from onnxq.operators.gather import Gather
from tests.operators import builder
from tests.operators.dynamic_builder import (
    HALF,
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

TABLE, IDS = normal(11, 32), np.array([[0, 10, 3], [-1, 5, 5]])
GATHERS = [
    Case("rows", (TABLE, IDS), (0,)),
    Case("columns", (normal(32, 11), IDS), (0,), {"axis": 1}),
    Case("middle axis", (normal(6, 11, 5), IDS), (0,), {"axis": -2}),
    Case("one index", (TABLE, np.array(3)), (0,)),
    Case("no index", (TABLE, np.zeros((0, 2), np.int64)), (0,)),
    Case("short rows", (normal(11, 3), IDS), (0,)),
    Case("numbers", (normal(11), IDS), (0,)),
]
KERNEL = normal(4, 2, 3, 3, seed=1)
CONVOLUTIONS: list[tuple[Operator, Case]] = [
    (Conv(), Case("bias", (normal(2, 2, 6, 5), KERNEL, normal(4)), (1, 2))),
    (Conv(), Case("groups", (normal(2, 4, 6, 5), KERNEL), (1,), {"group": 2, "pads": [1] * 4})),
    (Conv(), Case("run-time bias", (normal(2, 2, 6, 5), KERNEL, normal(4)), (1,))),
    (ConvTranspose(), Case("plain", (normal(2, 4, 6, 5), KERNEL), (1,), {"strides": [2, 2]})),
    (ConvTranspose(), Case("groups", (normal(2, 4, 6, 5), KERNEL), (1,), {"group": 2})),
    (ConvTranspose(), Case("depthwise", (normal(2, 4, 6, 5), KERNEL[:, :1]), (1,), {"group": 4})),
]
NODES: list[tuple[Operator, Case]] = [*((Gather(), case) for case in GATHERS), *CONVOLUTIONS]
EACH = pytest.mark.parametrize(
    ("operator", "case"), NODES, ids=[f"{o.op_type} {c.name}" for o, c in NODES]
)
CONV = pytest.mark.parametrize(
    ("operator", "case"), CONVOLUTIONS, ids=[f"{o.op_type} {c.name}" for o, c in CONVOLUTIONS]
)
HALF_ULP16 = 2.0**-11  # relative
SUMMED = 4 * 3 * 3  # at most, by these convolutions
STEPS = 255  # in a channel's range; rounding it and its zero point is off by half of one each


def rule_of(operator: Operator, case: Case) -> DynamicRule | Float:
    return operator.dynamic_rule(builder.node_of(operator, case))


def assert_off_by(operator: Operator, case: Case, model: ir.Model, per_weight: float) -> None:
    """Each weight is off by at most that; a convolution sums it times an input."""
    (wanted,), (got,) = (
        [np.asarray(y, np.float32) for y in ys]
        for ys in (builder.run_float(operator, case), run(model, samples(case)))
    )
    assert got.shape == wanted.shape
    inputs = 1.0
    if operator.op_type != "Gather":
        inputs = SUMMED * float(np.abs(np.asarray(case.inputs[0])).max())
    if got.size:
        assert np.abs(got - wanted).max() <= per_weight * inputs * 1.001


@EACH
@pytest.mark.parametrize("weight", [SYMMETRIC, affine("int8"), affine("uint8")], ids=repr)
def test_integers_are_stored_and_stand_for_the_weight(
    operator: Operator, case: Case, weight: ObserverSpec
) -> None:
    model = quantized_case(operator, case, Precision.WEIGHT_ONLY, weight)
    initializers = model.graph.initializers.items()
    kinds = {value.dtype for name, value in initializers if name.endswith("_quantized")}
    assert kinds <= {ir.DataType.INT8, ir.DataType.UINT8}
    assert len(kinds) == 1
    slot = 0 if operator.op_type == "Gather" else 1
    largest = float(np.abs(np.asarray(case.inputs[slot])).max())
    assert_off_by(operator, case, model, 2 * largest / STEPS)


@EACH
def test_half_is_within_half_an_ulp_of_float16(operator: Operator, case: Case) -> None:
    model = quantized_case(operator, case, Precision.WEIGHT_ONLY_FLOAT16, HALF)
    assert ir.DataType.FLOAT16 in {v.dtype for v in model.graph.initializers.values()}
    slot = 0 if operator.op_type == "Gather" else 1
    largest = float(np.abs(np.asarray(case.inputs[slot])).max())
    assert_off_by(operator, case, model, largest * HALF_ULP16)


@pytest.mark.parametrize("case", GATHERS[:4], ids=[c.name for c in GATHERS[:4]])
def test_an_embedding_equals_the_reference_bit_for_bit(case: Case) -> None:
    for weight in (SYMMETRIC, affine("uint8")):
        model = quantized_case(Gather(), case, Precision.WEIGHT_ONLY, weight)
        cross_check(model, [samples(case)]).check()


def test_the_float_embedding_exists_neither_in_the_file_nor_in_the_session(tmp_path: Path) -> None:
    model = quantized_case(Gather(), GATHERS[0], Precision.WEIGHT_ONLY)
    ops = optimized_ops(model, tmp_path)
    assert ops == ["Cast", "Gather", "Gather", "Mul"]
    stored = {v.name: v.const_value for v in model.graph.initializers.values()}
    floats = [t for t in stored.values() if t is not None and t.dtype == ir.DataType.FLOAT]
    assert [tuple(t.shape) for t in floats] == [(11, 1)]


def test_short_rows_share_one_scale(tmp_path: Path) -> None:
    model = quantized_case(Gather(), GATHERS[5], Precision.WEIGHT_ONLY)
    assert optimized_ops(model, tmp_path) == ["Cast", "Gather", "Mul"]


@CONV
@pytest.mark.parametrize("form", [Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16])
def test_dequantization_is_folded_when_a_session_is_made(
    operator: Operator, case: Case, form: Precision, tmp_path: Path
) -> None:
    model = quantized_case(
        operator, case, form, HALF if form is Precision.WEIGHT_ONLY_FLOAT16 else SYMMETRIC
    )
    assert set(optimized_ops(model, tmp_path)) <= {
        operator.op_type,
        "FusedConv",
        "ReorderInput",
        "ReorderOutput",
    }


def test_the_plan_says_why_a_convolution_computes_in_float() -> None:
    rule = rule_of(*CONVOLUTIONS[0])
    assert isinstance(rule, DynamicRule)
    assert "ConvInteger takes 4 to 9 times as long" in rule.missing


def test_weights_that_are_computed_stay_float() -> None:
    for operator, case in NODES:
        rule = rule_of(operator, dataclasses.replace(case, constants=()))
        assert isinstance(rule, Float)
        assert "computed at run time" in rule.reason.words


@pytest.mark.parametrize("value", [-np.inf, np.nan, -1e9])
def test_a_mask_stays_float(value: float) -> None:
    table = TABLE.copy()
    table[0, 0] = value
    rule = rule_of(Gather(), Case("", (table, IDS), (0,)))
    assert isinstance(rule, Float)
    assert "stand for infinity" in rule.reason.words


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("case", GATHERS[:4:3], ids=["rows", "one index"])
def test_an_embedding_of_4_bits_is_picked_as_bytes(case: Case, dtype: str, tmp_path: Path) -> None:
    model = quantized_case(Gather(), case, Precision.WEIGHT_ONLY, affine(dtype))
    assert "GatherBlockQuantized" not in optimized_ops(model, tmp_path)
    assert_off_by(Gather(), case, model, 2 * float(np.abs(TABLE).max()) / 15)
    cross_check(model, [samples(case)]).check()


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
def test_an_embedding_in_blocks(dtype: str, tmp_path: Path) -> None:
    case = Case("", (normal(11, 40), IDS), (0,))
    model = quantized_case(Gather(), case, Precision.WEIGHT_ONLY_GROUPWISE, affine(dtype), 16)
    assert optimized_ops(model, tmp_path) == ["GatherBlockQuantized"]
    steps = 15 if dtype.endswith("4") else STEPS
    assert_off_by(Gather(), case, model, 2 * float(np.abs(normal(11, 40)).max()) / steps)
    cross_check(model, [samples(case)]).check()


def test_an_embedding_in_blocks_that_nothing_picks_stays_float() -> None:
    case = Case("", (normal(11, 40), IDS), (0,))
    with pytest.raises(
        NothingQuantizedError, match=r"takes integers of 4 bits or more, .* asks for int2"
    ):
        quantized_case(Gather(), case, Precision.WEIGHT_ONLY_GROUPWISE, affine("int2"), 16)
