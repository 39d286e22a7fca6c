"""One contract for every registered operator: its rule, lowering and kernel against ORT."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxq import catalog
from onnxq.affine import dequantize
from onnxq.dtypes import INT8, INT32, UINT8, QDType
from onnxq.errors import OnnxqError, ShapeError
from onnxq.operator import (
    Array,
    Call,
    Case,
    IntegerOperator,
    NodePlan,
    OpCategory,
    Operator,
    Precision,
)
from onnxq.ort import facts
from onnxq.ort.version import installed
from onnxq.qparams import PerChannel, QParams
from tests.operators import builder
from tests.operators.builder import Types
from tests.operators.definitions import definition, module

OPERATORS = catalog.all_operators()
FOLDER = Path(catalog.__file__).parent / "operators"

# Grow these never, shrink them often.
DYNAMIC_ONLY = {"GRU", "LSTM", "RNN", "com.microsoft.Attention"}
WITHOUT_RULE: set[str] = DYNAMIC_ONLY
WITHOUT_LOWERING: set[str] = DYNAMIC_ONLY
WITHOUT_KERNEL: set[str] = DYNAMIC_ONLY

# The result is rounded once (half an LSB); integer and float arithmetic may round to different
# sides of a tie, so that they end one LSB apart.
STEPS = 1.0

# FLOAT_BETWEEN_QDQ: ONNX Runtime computes in float32, by polynomials of its own; near a tie the
# result may fall to the other side. benchmarks/exactness.py holds the same bound over 200,000
# elements.
FLOAT_SHARE = 1e-4

TYPES = (
    Types(),
    Types(power_of_two=True),
    Types(zero_point="low"),
    Types(zero_point="high", power_of_two=True),
    Types(squeeze=0.3),
    Types(w=UINT8),
    Types(x=INT8),
    Types(x=INT8, power_of_two=True, squeeze=0.3),
)

COPYING_TYPES = (Types(), Types(x=INT8, zero_point="high", power_of_two=True))


def types_for(operator: Operator, case: Case) -> tuple[Types, ...]:
    """Fewer for operators that copy integers or have no weight.

    None that ONNX Runtime lacks here.
    """
    rule = builder.rule_of(operator, case)
    all_types = COPYING_TYPES if rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP) else TYPES
    known = (types for types in all_types if is_known(operator, types.x))
    return tuple(types for types in known if rule.category is OpCategory.COMPUTE or types.w == INT8)


def is_known(operator: Operator, integers: QDType) -> bool:
    """Whether the installed ONNX Runtime has a kernel of it on such integers."""
    return ir.DataType[integers.onnx] not in facts.named(operator.op_type).lacks


Says = Callable[[Operator, Case], bool]


def cases_where(says: Says) -> list[tuple[Operator, Case]]:
    """Cases that run in integers and that a claim is about."""
    return [(op, case) for op in OPERATORS for case in quantized_cases(op) if says(op, case)]


def each_case(says: Says = lambda *_: True) -> pytest.MarkDecorator:
    """The test runs for each of `cases_where`; one that would say nothing is not collected."""
    found = cases_where(says)
    names = [f"{op.op_type}-{case.name}" for op, case in found]
    return pytest.mark.parametrize(("operator", "case"), found, ids=names)


def each_operator(says: Says = lambda *_: True) -> pytest.MarkDecorator:
    """The test runs for each operator that one of `cases_where` is of."""
    found = list(dict.fromkeys(op for op, _ in cases_where(says)))
    return pytest.mark.parametrize("operator", found, ids=[op.op_type for op in found])


@functools.cache
def quantized_cases(operator: Operator) -> tuple[Case, ...]:
    """The operator's cases that run in integers, and that the installed ONNX Runtime survives."""
    return tuple(
        case
        for case in operator.cases()
        if not builder.is_float(operator, case) and not ends_the_process(operator, case)
    )


def ends_the_process(operator: Operator, case: Case) -> bool:
    """TopK of an empty tensor divides by zero before 1.31, in float models too."""
    empty = any(x is not None and x.size == 0 for x in case.inputs)
    return operator.op_type == "TopK" and empty and installed() < (1, 31)


def has_both(operator: Operator) -> bool:
    """Whether it has a lowering and a kernel to compare it with."""
    return operator.has_lowering() and operator.has_kernel()


def has_axis(operator: Operator, case: Case) -> bool:
    """Whether an attribute of the node is an axis."""
    schema = onnx.defs.get_schema(operator.op_type, case.opset, operator.domain)
    return "axis" in schema.attributes


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_case_names_are_unique(operator: Operator) -> None:
    found = [case.name for case in operator.cases()]
    assert found
    assert len(set(found)) == len(found)


@each_case()
def test_slots_exist_in_the_onnx_schema(operator: Operator, case: Case) -> None:
    schema = onnx.defs.get_schema(operator.op_type, case.opset, operator.domain)
    rule = builder.rule_of(operator, case)
    slots = [*rule.activations, *([rule.weight.slot] if rule.weight else [])]
    slots += [] if rule.bias is None else [rule.bias]
    assert len(set(slots)) == len(slots)
    assert all(0 <= slot < schema.max_input for slot in slots)
    assert all(0 <= slot < schema.max_output for slot in rule.outputs)
    assert all(slot < len(case.inputs) for slot in rule.activations)
    if rule.weight is not None:
        weight = case.inputs[rule.weight.slot]
        assert weight is not None
        assert 0 <= rule.weight.axis < weight.ndim


@each_case()
def test_rule_is_consistent(operator: Operator, case: Case) -> None:
    rule = builder.rule_of(operator, case)
    assert (rule.clamp is not None) == (rule.category is OpCategory.CLAMP)
    assert rule.bias is None or rule.weight is not None
    if rule.category is OpCategory.MOVEMENT:
        assert rule.shares_qparams
    if rule.lowered:
        assert operator.has_lowering(), "the QDQ rewrite calls lower for a lowered rule"


# a lowered rule has no QDQ format; the lowered form is compared below
@each_case(lambda op, case: not builder.rule_of(op, case).lowered)
@pytest.mark.parametrize("types", [Types(), Types(x=INT8)], ids=str)
def test_qdq_form_is_within_an_lsb_of_float(operator: Operator, case: Case, types: Types) -> None:
    plan = builder.plan_of(operator, case, types)
    integers = builder.integers_of(case, plan)
    got = builder.run_exactly(builder.qdq_model(operator, case, plan, integers), case, integers)
    assert_close_to_float(operator, case, plan, integers, got)


# a bound is fused where it is redundant, which depends on the data
@each_case(lambda op, case: builder.rule_of(op, case).category is not OpCategory.CLAMP)
def test_onnx_runtime_fuses_the_qdq_form_and_only_that(
    operator: Operator, case: Case, tmp_path: Path
) -> None:
    plan = builder.plan_of(operator, case, Types())
    integers = builder.integers_of(case, plan)
    found = builder.optimized_ops(builder.qdq_model(operator, case, plan, integers), tmp_path)
    rule = builder.rule_of(operator, case)
    fused = not {"QuantizeLinear", "DequantizeLinear"} & set(found)
    assert fused == rule.is_fused, f"{found}: Rule(lowered, precision) says else"


@each_case(lambda op, _: op.has_lowering())
def test_lowered_form_is_within_an_lsb_of_float(operator: Operator, case: Case) -> None:
    plan = builder.plan_of(operator, case, Types())
    integers = builder.integers_of(case, plan)
    got = builder.run_exactly(builder.lowered_model(operator, case, plan, integers), case, integers)
    assert_close_to_float(operator, case, plan, integers, got)


def assert_close_to_float(
    operator: Operator, case: Case, plan: NodePlan, integers: list[Array | None], got: list[Array]
) -> None:
    reals = dataclasses.replace(case, inputs=builder.reals_of(integers, plan))
    for y, p, wanted in zip(got, plan.outputs, builder.run_float(operator, reals), strict=True):
        assert y.shape == wanted.shape
        if p is None:
            assert np.array_equal(y, wanted)
            continue
        ends = np.array([p.dtype.qmin, p.dtype.qmax], p.dtype.storage)
        inside = np.clip(wanted.astype(np.float64), *dequantize(ends, p))
        steps = (
            np.abs(dequantize(y.astype(p.dtype.storage), p).astype(np.float64) - inside) / p.scale
        )
        assert steps.max(initial=0) <= STEPS + 1e-3  # 1e-3: float32 noise of both sums, in LSB


@pytest.mark.parametrize(
    ("operator", "case", "types"),
    [
        pytest.param(op, case, types, id=f"{op.op_type}-{case.name}-{types}")
        for op, case in cases_where(lambda op, _: has_both(op))
        for types in types_for(op, case)
    ],
)
def test_kernel_equals_onnx_runtime(operator: Operator, case: Case, types: Types) -> None:
    assert_kernel_equals(operator, case, types, case_integers=None, output=True)
    if not builder.rule_of(operator, case).needs_output:
        assert_kernel_equals(operator, case, types, case_integers=None, output=False)


def assert_kernel_equals(
    operator: Operator, case: Case, types: Types, case_integers: int | None, *, output: bool
) -> None:
    """case_integers: seed of random integers in place of the case's own data."""
    plan = builder.plan_of(operator, case, types, output=output)
    integers = builder.integers_of(case, plan)
    if case_integers is not None:
        integers = randomized(integers, plan, case_integers)
    wanted = builder.run_exactly(
        builder.lowered_model(operator, case, plan, integers), case, integers
    )
    got = operator.kernel(Call(operator.op_type, integers, plan, attributes=case.attributes or {}))
    assert len(got) == len(wanted)
    exact = builder.rule_of(operator, case).precision is not Precision.FLOAT_BETWEEN_QDQ
    for y, ort in zip(got, wanted, strict=True):
        assert y.dtype == ort.dtype
        assert y.shape == ort.shape
        if exact:
            assert np.array_equal(y, ort)
            continue
        steps = np.abs(y.astype(np.int64) - ort.astype(np.int64))
        assert steps.max(initial=0) <= 1
        assert np.count_nonzero(steps) <= 1 + FLOAT_SHARE * steps.size


def randomized(integers: list[Array | None], plan: NodePlan, seed: int) -> list[Array | None]:
    """Uniform integers over the whole type, ends included; biases and weights' -128 stay out."""
    random = np.random.default_rng(seed)
    return [
        x
        if x is None or p is None or p.dtype == INT32
        else random.integers(p.dtype.qmin, p.dtype.qmax + 1, x.shape).astype(p.dtype.storage)
        for x, p in zip(integers, plan.inputs, strict=True)
    ]


@each_operator(lambda op, _: has_both(op))
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_kernel_equals_onnx_runtime_over_all_integers(
    operator: Operator, data: st.DataObject
) -> None:
    case = data.draw(st.sampled_from(quantized_cases(operator)))
    in_floats = builder.rule_of(operator, case).precision is Precision.FLOAT_BETWEEN_QDQ
    types = Types(
        x=data.draw(st.sampled_from([x for x in (UINT8, INT8) if is_known(operator, x)])),
        zero_point=data.draw(st.sampled_from(["low", "high", "fitted"])),
        # with such scales whole columns of an Attention lie on ties, up to the last bit of a sum
        power_of_two=not in_floats and data.draw(st.booleans()),
        squeeze=data.draw(st.floats(0.05, 4.0)),
    )
    if types.x == UINT8:
        types = dataclasses.replace(types, w=data.draw(st.sampled_from([UINT8, INT8])))
    seed = data.draw(st.integers(0, 2**31))
    assert_kernel_equals(operator, case, types, seed, output=True)


@each_operator(lambda op, _: op.has_kernel())
def test_kernel_refuses_a_wrong_dtype(operator: Operator) -> None:
    for case in quantized_cases(operator):
        plan = builder.plan_of(operator, case, Types())
        integers = builder.integers_of(case, plan)
        slot = builder.rule_of(operator, case).activations[0]
        integers[slot] = np.asarray(integers[slot], np.int16)
        with pytest.raises(ShapeError, match="int16"):
            operator.kernel(
                Call(operator.op_type, integers, plan, attributes=case.attributes or {})
            )


@each_operator(lambda op, _: op.has_kernel())
def test_kernel_refuses_missing_qparams(operator: Operator) -> None:
    for case in quantized_cases(operator):
        plan = builder.plan_of(operator, case, Types())
        integers = builder.integers_of(case, plan)
        bare = NodePlan((None,) * len(plan.inputs), plan.outputs)
        with pytest.raises(ShapeError, match="qparams"):
            operator.kernel(
                Call(operator.op_type, integers, bare, attributes=case.attributes or {})
            )


@each_operator(lambda op, case: builder.rule_of(op, case).weight is not None)
def test_kernel_refuses_scales_of_the_wrong_length(operator: Operator) -> None:
    for case in quantized_cases(operator):
        weight = builder.rule_of(operator, case).weight
        plan = builder.plan_of(operator, case, Types())
        p = None if weight is None else plan.inputs[weight.slot]
        if weight is None or p is None:
            continue
        count = p.scale.size + 1
        scales, points = np.ones(count, np.float32), np.zeros(count, p.dtype.storage)
        longer = QParams(scales, points, p.dtype, PerChannel(weight.axis))
        inputs = tuple(longer if i == weight.slot else q for i, q in enumerate(plan.inputs))
        wrong, integers = dataclasses.replace(plan, inputs=inputs), builder.integers_of(case, plan)
        with pytest.raises(ShapeError, match=f"has {count} scales"):
            operator.kernel(
                Call(operator.op_type, integers, wrong, attributes=case.attributes or {})
            )


@each_operator(has_axis)
def test_kernel_refuses_an_axis_out_of_range(operator: Operator) -> None:
    for case in quantized_cases(operator):
        if not has_axis(operator, case):
            continue
        plan = builder.plan_of(operator, case, Types())
        integers = builder.integers_of(case, plan)
        for axis in (9, -9):
            with pytest.raises(ShapeError, match=f"{operator.op_type}.*{axis}"):
                operator.kernel(
                    Call(
                        operator.op_type,
                        integers,
                        plan,
                        attributes={**(case.attributes or {}), "axis": axis},
                    )
                )


@each_operator()
def test_kernel_computes_or_refuses_in_words_whatever_the_shapes(operator: Operator) -> None:
    for case in quantized_cases(operator):
        plan = builder.plan_of(operator, case, Types())
        for inputs in builder.misshapen(builder.integers_of(case, plan)):
            with contextlib.suppress(OnnxqError):  # anything else, or a warning, fails
                operator.kernel(
                    Call(operator.op_type, inputs, plan, attributes=case.attributes or {})
                )


@each_operator(lambda op, _: op.has_kernel())
def test_kernel_leaves_its_inputs_untouched(operator: Operator) -> None:
    for case in quantized_cases(operator):
        plan = builder.plan_of(operator, case, Types())
        integers = builder.integers_of(case, plan)
        for x in integers:
            if x is not None:
                x.setflags(write=False)
        operator.kernel(Call(operator.op_type, integers, plan, attributes=case.attributes or {}))


def test_rules_lowerings_and_kernels_still_missing_are_exactly_those_listed() -> None:
    without_rule = {
        name(op) for op in OPERATORS if all(builder.is_float(op, case) for case in op.cases())
    }
    assert without_rule == WITHOUT_RULE
    without = {name(op) for op in OPERATORS if not op.has_lowering()}
    assert without == WITHOUT_LOWERING, "an operator with a Rule has a `lower`"
    without = {name(op) for op in OPERATORS if not op.has_kernel()}
    assert without == WITHOUT_KERNEL, "an operator with a Rule has a `kernel`"


def name(operator: Operator) -> str:
    """Gelu, com.microsoft.Attention."""
    return f"{operator.domain}.{operator.op_type}" if operator.domain else operator.op_type


def home(operator: Operator | IntegerOperator) -> str:
    """Name of the file that defines it."""
    return module(operator).rpartition(".")[2]


def test_every_operator_states_its_equation_and_onnx_version() -> None:
    for operator in OPERATORS:
        text = definition(operator).__doc__
        wanted = f"{operator.domain or 'ONNX'} {operator.op_type}-"
        assert text is not None, operator.op_type
        assert wanted in text, operator.op_type


def test_every_file_has_a_twin_test_and_one_operator_named_like_it() -> None:
    files = {path.stem for path in FOLDER.glob("*.py") if not path.name.startswith("_")}
    twins = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert files <= twins
    homes = [(home(op), op.op_type) for op in OPERATORS]
    homes += [(home(op), op.op_type) for op in catalog.all_integer_operators()]
    assert sorted(file for file, _ in homes) == sorted(files)
    for file, op_type in homes:
        assert file.replace("_", "").removeprefix(_publisher(file)) == op_type.lower()


def _publisher(file: str) -> str:
    """Before the name of an operator that ai.onnx has too: the last part of its own domain."""
    found = [op for op in OPERATORS if home(op) == file and op.domain]
    clashes = [op for op in found if catalog.find(op.op_type) is not None]
    return clashes[0].domain.rpartition(".")[2] if clashes else ""
