"""Scales of results as scales of inputs: all operators that say so, on all their cases."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import catalog
from onnxq.operator import Case, Operator, Reals
from tests.operators.builder import node_of, operator, run_float

if TYPE_CHECKING:
    from collections.abc import Mapping

TOLERANCE = 1e-5  # scales are between 0.5 and 4: a few roundings of float32 in sums of 1,500


def scaling() -> list[tuple[str, Case]]:
    """Cases of the operators that take scales, without empty results and divisions by 0."""
    names = [
        op.op_type
        for op in catalog.all_operators()
        if not op.domain and type(op).scaled is not Operator.scaled
    ]
    cases = [(name, case) for name in names for case in operator(name).cases()]
    return [
        (name, case)
        for name, case in cases
        if all(x is None or x.size for x in case.inputs) and case.name != "zeros"
    ]


def scales_of(shape: tuple[int, ...]) -> list[Reals]:
    """One scale per axis of more than one element."""
    rng = np.random.default_rng(len(shape))
    return [
        np.exp2(rng.uniform(-1, 2, size)).reshape(
            [-1 if i == axis else 1 for i in range(len(shape))]
        )
        for axis, size in enumerate(shape)
        if size > 1
    ]


def times(case: Case, scales: Mapping[int, Reals]) -> Case:
    """The case with inputs multiplied; absent ones stay absent."""
    inputs = tuple(
        x if x is None or slot not in scales else np.asarray(x.astype(float) * scales[slot], "f4")
        for slot, x in enumerate(case.inputs)
    )
    return dataclasses.replace(case, inputs=inputs)


def result_of(op: Operator, case: Case) -> Reals:
    return run_float(op, case)[0].astype(np.float64)


def assert_close(made: Reals, wanted: Reals) -> None:
    assert made.shape == wanted.shape
    assert np.abs(made - wanted).max() <= TOLERANCE * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize(("name", "case"), scaling(), ids=lambda x: getattr(x, "name", x))
def test_scales_of_inputs_make_the_scale_of_the_result(name: str, case: Case) -> None:
    op = operator(name)
    result = result_of(op, case)
    for scale in scales_of(result.shape):
        for way in op.scaled(node_of(op, case), scale):
            assert_close(result_of(op, times(case, way)), result * scale)


@pytest.mark.parametrize("name", ["MatMul", "Gemm"])
def test_constants_undo_what_divides_the_input(name: str) -> None:
    op, undone = operator(name), 0
    for case in op.cases():
        x = case.inputs[0]
        for scale in scales_of(x.shape) if x is not None and x.size else ():
            way = op.undone(node_of(op, case), scale)
            if way is not None:
                divided = times(case, {0: 1 / scale, **way})
                assert_close(result_of(op, divided), result_of(op, case))
                undone += 1
    assert undone > 3


def test_a_scale_of_heads_comes_out_of_a_reshape_as_one_of_columns() -> None:
    """(2, 3, 8) as (2, 3, 4, 2): a scale per (head, element) is one per column."""
    x = np.zeros((2, 3, 8), np.float32)
    case = Case("heads", (x, np.array([2, 3, 4, 2])), (1,))
    scale = np.arange(1.0, 9).reshape(1, 1, 4, 2)
    (way,) = operator("Reshape").scaled(node_of(operator("Reshape"), case), scale)
    assert way[0].reshape(-1).tolist() == list(range(1, 9))
    assert way[0].shape == (1, 1, 8)
