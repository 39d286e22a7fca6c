"""One contract for every integer operator: its kernel against ONNX Runtime, and its refusals."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from onnxq import catalog
from onnxq.errors import OnnxqError, ShapeError
from onnxq.operator import IntegerCall
from tests import this_machine
from tests.operators import builder

if TYPE_CHECKING:
    from onnxq.operator import Array, Case, IntegerOperator

OPERATORS = catalog.all_integer_operators()
CASES = [
    pytest.param(op, domain, case, id=f"{domain or 'ai.onnx'}-{op.op_type}-{case.name}")
    for op in OPERATORS
    for domain in op.domains
    for case in op.cases()
]
BY_OPERATOR = [pytest.param(op, id=op.op_type) for op in OPERATORS]


def scale_slots(operator: IntegerOperator, case: Case) -> list[tuple[int, str]]:
    """(slot, what a message calls it) of every scale, by the names in the ONNX schema."""
    domain = operator.domains[-1]
    schema = onnx_schema(operator.op_type, domain)
    return [
        (i, name.split("_scale")[0])
        for i, name in enumerate(schema[: len(case.inputs)])
        if "scale" in name.lower() and case.inputs[i] is not None
    ]


@functools.cache
def onnx_schema(op_type: str, domain: str) -> list[str]:
    """Names of the inputs; com.microsoft's are known to ONNX Runtime alone."""
    if domain == "":
        return [value.name for value in onnx.defs.get_schema(op_type).inputs]
    (schema,) = [
        s for s in ort_state.get_all_operator_schema() if (s.name, s.domain) == (op_type, domain)
    ]
    return [value.name for value in schema.inputs]


ANY_SCALE = {"DequantizeLinear", "GatherBlockQuantized", "MatMulNBits", "QMoE"}
"""Operators that multiply by any finite scale in ONNX Runtime: one below 0 gives the lowest
integer to a block's maximum, 0 stands for a block of zeros."""
WITH_SCALES = [
    pytest.param(op, id=op.op_type)
    for op in OPERATORS
    if any(scale_slots(op, case) for case in op.cases())
]


def assert_equals_onnx_runtime(operator: IntegerOperator, domain: str, case: Case) -> None:
    call = IntegerCall(operator.op_type, case.inputs, attributes=case.attributes or {})
    got = this_machine.compute(operator, call)
    foreign = [i for i, y in enumerate(got) if y.dtype.type.__module__ != "numpy"]
    model = builder.integer_model(operator, domain, case, foreign)
    wanted = builder.run(model, case, case.inputs)
    got = tuple(y.astype(np.float32) if i in foreign else y for i, y in enumerate(got))
    assert len(got) >= len(wanted)
    bound = operator.bound_on(call, this_machine.ACCUMULATOR)
    for slot, (y, ort) in enumerate(zip(got, wanted, strict=False)):
        assert y.dtype == ort.dtype
        assert y.shape == ort.shape
        if bound is None or slot:  # a bound is of output 0 alone
            assert np.array_equal(y, ort, equal_nan=y.dtype.kind == "f")
        else:
            assert (np.abs(y.astype(np.float64) - ort.astype(np.float64)) <= bound).all()


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_case_names_are_unique(operator: IntegerOperator) -> None:
    found = [case.name for case in operator.cases()]
    assert found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("operator", "domain", "case"), CASES)
def test_kernel_equals_onnx_runtime(operator: IntegerOperator, domain: str, case: Case) -> None:
    assert_equals_onnx_runtime(operator, domain, case)


def randomized(case: Case, seed: int) -> Case:
    """Other integers of 8 bits and other reals; scales, zero points, biases and indices stay."""
    random = np.random.default_rng(seed)

    def other(i: int, x: Array | None) -> Array | None:
        if x is None or i in case.constants:
            return x
        if x.dtype in (np.uint8, np.int8) and x.ndim:
            limits = np.iinfo(x.dtype.name)
            return random.integers(limits.min, limits.max, x.shape, x.dtype.type, endpoint=True)
        if x.dtype == np.float32 and x.ndim:
            return np.asarray(random.standard_normal(x.shape), np.float32)
        return x

    inputs = tuple(other(i, x) for i, x in enumerate(case.inputs))
    return dataclasses.replace(case, inputs=inputs)


@pytest.mark.parametrize("operator", BY_OPERATOR)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_kernel_equals_onnx_runtime_over_all_integers(
    operator: IntegerOperator, data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(list(operator.cases())))
    domain = data.draw(st.sampled_from(operator.domains))
    assert_equals_onnx_runtime(operator, domain, randomized(case, data.draw(st.integers(0, 2**31))))


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_kernel_refuses_a_wrong_dtype_in_every_slot(operator: IntegerOperator) -> None:
    for case in operator.cases():
        for slot, x in enumerate(case.inputs):
            if x is None:
                continue
            inputs = list(case.inputs)
            inputs[slot] = x.astype(np.complex64)
            with pytest.raises(OnnxqError, match=f"{operator.op_type}.*complex64"):
                operator.kernel(
                    IntegerCall(operator.op_type, inputs, attributes=case.attributes or {})
                )


@pytest.mark.parametrize(
    ("operator", "bad"),
    [
        pytest.param(*param.values, bad, id=f"{bad}-{param.id}")
        for bad in (0.0, -0.5, np.nan, np.inf)
        for param in WITH_SCALES
        if param.id not in ANY_SCALE or (param.id != "DequantizeLinear" and not np.isfinite(bad))
    ],
)
def test_kernel_refuses_a_scale_that_is_not_positive(operator: IntegerOperator, bad: float) -> None:
    for case in operator.cases():
        for slot, name in scale_slots(operator, case):
            inputs = list(case.inputs)
            inputs[slot] = np.full_like(np.asarray(inputs[slot]), bad)
            with pytest.raises(ShapeError, match=f"{operator.op_type}.*{name}"):
                operator.kernel(
                    IntegerCall(operator.op_type, inputs, attributes=case.attributes or {})
                )


@pytest.mark.parametrize("operator", WITH_SCALES)
def test_kernel_refuses_scales_of_the_wrong_length(operator: IntegerOperator) -> None:
    for case in operator.cases():
        for slot, _ in scale_slots(operator, case):
            inputs = list(case.inputs)
            inputs[slot] = np.ones(np.asarray(inputs[slot]).size + 11, np.float32)
            with pytest.raises(ShapeError, match="scale"):
                operator.kernel(
                    IntegerCall(operator.op_type, inputs, attributes=case.attributes or {})
                )


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_kernel_computes_or_refuses_in_words_whatever_the_shapes(operator: IntegerOperator) -> None:
    for case in operator.cases():
        for inputs in builder.misshapen(case.inputs):
            with contextlib.suppress(OnnxqError):  # anything else, or a warning, fails
                operator.kernel(
                    IntegerCall(operator.op_type, inputs, attributes=case.attributes or {})
                )


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_kernel_refuses_missing_inputs(operator: IntegerOperator) -> None:
    for case in operator.cases():
        with pytest.raises(ShapeError, match=operator.op_type):
            operator.kernel(
                IntegerCall(
                    operator.op_type, (None,) * len(case.inputs), attributes=case.attributes or {}
                )
            )


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_kernel_leaves_its_inputs_untouched(operator: IntegerOperator) -> None:
    for case in operator.cases():
        copies = [None if x is None else x.copy() for x in case.inputs]
        operator.kernel(
            IntegerCall(operator.op_type, case.inputs, attributes=case.attributes or {})
        )
        for x, copy in zip(case.inputs, copies, strict=True):
            assert x is copy or np.asarray(x).tobytes() == np.asarray(copy).tobytes()
