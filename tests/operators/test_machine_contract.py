"""Machines differ in the pairs of weights or integers that are named, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import catalog
from onnxq.operator import IntegerCall
from onnxq.targets.accumulation import (
    Accumulator,
    Overflows,
    SaturationEffect,
    SaturationMode,
    joined,
)

if TYPE_CHECKING:
    from onnxq.operator import Array, Case, IntegerOperator

OPERATORS = [op for op in catalog.all_integer_operators() if op.depends_on_machine()]
CASES = [
    pytest.param(op, case, id=f"{op.op_type}-{case.name}")
    for op in OPERATORS
    for case in op.cases()
]
MACHINES = [kind for kind in SaturationMode if kind is not SaturationMode.EXACT]
SHARE = 0.4  # of integers that are the lowest one of their type; as many are the highest


def nasty(operator: IntegerOperator, case: Case) -> list[Array | None]:
    """The inputs, with most integers at the ends of their type."""
    rng = np.random.default_rng(0)
    inputs = [None if x is None else np.array(x) for x in case.inputs]
    for slot in {0, *operator.weights}:
        x = inputs[slot]
        if x is not None and x.dtype in (np.uint8, np.int8):
            lowest, highest = (-128, 127) if x.dtype == np.int8 else (0, 255)
            which = rng.random(x.shape)
            x[which < SHARE] = lowest
            x[which > 1 - SHARE] = highest
    return inputs


def test_all_whose_sums_depend_on_the_machine_are_here() -> None:
    assert {op.op_type for op in OPERATORS} == {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QLinearAdd",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "QLinearMul",
    }


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_results_differ_only_where_a_pair_of_named_weights_overflows(
    operator: IntegerOperator, case: Case
) -> None:
    inputs, attributes = nasty(operator, case), dict(case.attributes or {})
    exact = operator.kernel(IntegerCall(operator.op_type, inputs, attributes=attributes))
    for saturation_mode in MACHINES:
        notes: list[Overflows] = []
        got = operator.kernel_on(
            IntegerCall(operator.op_type, inputs, attributes=attributes),
            Accumulator(saturation_mode, notes.append),
        )
        same = all(np.array_equal(x, y) for x, y in zip(got, exact, strict=True))
        heard = joined(notes)
        assert same or heard is not None
        if heard is None:
            continue
        assert heard.count.min() > 0
        possible = operator.risks(
            IntegerCall(operator.op_type, inputs, attributes=attributes), saturation_mode
        )
        assert possible is not None
        named = set(zip(possible.first.tolist(), possible.second.tolist(), strict=True))
        seen = set(zip(heard.first.tolist(), heard.second.tolist(), strict=True))
        assert seen <= named


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.op_type)
def test_the_cases_do_overflow(operator: IntegerOperator) -> None:
    notes: list[Overflows] = []
    for case in operator.cases():
        inputs, attributes = nasty(operator, case), dict(case.attributes or {})
        for saturation_mode in MACHINES:
            operator.kernel_on(
                IntegerCall(operator.op_type, inputs, attributes=attributes),
                Accumulator(saturation_mode, notes.append),
            )
    assert notes


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_what_is_only_noted_changes_nothing(operator: IntegerOperator, case: Case) -> None:
    inputs, attributes = nasty(operator, case), dict(case.attributes or {})
    exact = operator.kernel(IntegerCall(operator.op_type, inputs, attributes=attributes))
    for saturation_mode in MACHINES:
        accumulator = Accumulator(saturation_mode, effect=SaturationEffect.NOTED)
        noted = operator.kernel_on(
            IntegerCall(operator.op_type, inputs, attributes=attributes), accumulator
        )
        assert all(np.array_equal(x, y) for x, y in zip(noted, exact, strict=True))
