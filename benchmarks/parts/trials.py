"""Random trials of the catalog's operators on ONNX Runtime, for benchmarks/exactness.py.

A trial is one node in a session of its own, with random constants, scales and zero points; it is
run again and again on random inputs.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.operator import Array, Call, Case, IntegerCall, IntegerOperator, Operator, Precision
from tests.operators import builder
from tests.operators.builder import Types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onnxruntime import InferenceSession

DRAWN = ("uint8", "int8", "uint16", "int16", "float32")
GROWTH = 61  # of the first axis; a prime, so that no kernel's block divides it

Inputs = list[Array | None]


@dataclass(frozen=True)
class Validation:
    """One node that runs again and again on other integers.

    Attributes:
        types: "u8s8".
        draw: random inputs.
        ort: ONNX Runtime's outputs for them.
        kernel: the kernel's.
        bound: largest difference allowed, per element of output 0; None: none.
        kind: of its bound: "exact"; "1 step" (FLOAT_BETWEEN_QDQ: a result may round to the other
            side of a tie); "bound()".
        label: for messages.
    """

    types: str
    draw: Callable[[np.random.Generator], Inputs]
    ort: Callable[[Inputs], list[Array]]
    kernel: Callable[[Inputs], tuple[Array, ...]]
    bound: Callable[[Inputs], Array | None]
    kind: str
    label: str


QPARAMS = tuple(
    Types(zero_point=zero_point, power_of_two=ties, squeeze=squeeze)
    for zero_point, ties, squeeze in (
        ("fitted", False, 1.0),
        ("fitted", True, 1.0),
        ("low", True, 0.1),
        ("high", False, 0.3),
        ("high", True, 2.0),
        ("low", False, 4.0),
    )
)
PAIRS = ((UINT8, UINT8), (UINT8, INT8), (INT8, INT8))


def short(dtype: object) -> str:
    """u8 for uint8."""
    return str(dtype).replace("uint", "u").replace("int", "s").replace("float", "f")


def grown(case: Case, slots: tuple[int, ...]) -> Case:
    """The case with the inputs in `slots` repeated along their first axis."""
    inputs = tuple(
        np.concatenate([x] * GROWTH) if i in slots and x is not None and x.ndim else x
        for i, x in enumerate(case.inputs)
    )
    return dataclasses.replace(case, inputs=inputs)


def sizes(case: Case, slots: list[int]) -> Iterator[Case]:
    """The case grown, by the first of its run-time operands, by all of them, and as it is."""
    running = tuple(slot for slot in slots if slot not in case.constants)
    if all(x is None or x.size for x in case.inputs):
        yield grown(case, running[:1])
        yield grown(case, running)
    yield case


def float_trials(operator: Operator, random: np.random.Generator) -> Iterator[Validation]:
    """Trials of the lowered form, over cases, types, scales and zero points."""
    for original in operator.cases():
        if builder.is_float(operator, original):
            continue
        rule = builder.rule_of(operator, original)
        grown_cases = sizes(original, list(rule.activations))
        case = next((c for c in grown_cases if loads(operator, c)), original)
        for (x, w), qparams in itertools.product(PAIRS, QPARAMS):
            if rule.weight is None and x != w:
                continue
            types = dataclasses.replace(qparams, x=x, w=w)
            for output in (True,) if rule.needs_output else (True, False):
                yield lowered_validation(operator, case, types, random, output=output)


def loads(operator: Operator, case: Case) -> bool:
    """Whether ONNX Runtime takes these shapes."""
    try:
        builder.run_float(operator, case)
    except Exception:  # whatever ONNX and ONNX Runtime raise on unsuitable shapes
        return False
    return not builder.is_float(operator, case)


def lowered_validation(
    operator: Operator, case: Case, types: Types, random: np.random.Generator, *, output: bool
) -> Validation:
    """The lowered form in a session of its own; constants are drawn once."""
    rule = builder.rule_of(operator, case)
    plan = builder.plan_of(operator, case, types, output=output)
    constants = builder.integers_of(case, plan)

    def draw(random: np.random.Generator, *, all_of_them: bool = False) -> Inputs:
        return [
            x
            if x is None
            or p is None
            or p.dtype == INT32
            or (i in case.constants and not all_of_them)
            else random.integers(p.dtype.qmin, p.dtype.qmax + 1, x.shape).astype(p.dtype.storage)
            for i, (x, p) in enumerate(zip(constants, plan.inputs, strict=True))
        ]

    constants = draw(random, all_of_them=True)
    session = builder.session(builder.lowered_model(operator, case, plan, constants))
    label = f"{short(types.x)}{short(types.w) if rule.weight else ''}"
    return Validation(
        label,
        draw,
        lambda inputs: feed(session, case, inputs),
        lambda inputs: operator.kernel(
            Call(operator.op_type, inputs, plan, attributes=case.attributes or {})
        ),
        lambda _: None,
        "1 step" if rule.precision is Precision.FLOAT_BETWEEN_QDQ else "exact",
        f"case '{case.name}', {types}{'' if output else ', float32 result'}",
    )


def feed(session: InferenceSession, case: Case, inputs: Inputs) -> list[Array]:
    """Outputs of ONNX Runtime."""
    named = zip(builder.names(case), inputs, strict=True)
    feeds = {n: x for i, (n, x) in enumerate(named) if x is not None and i not in case.constants}
    return [np.asarray(y) for y in session.run(None, feeds)]


def integer_trials(
    operator: IntegerOperator, domain: str, random: np.random.Generator
) -> Iterator[Validation]:
    """Trials of the node as it is, over cases, types, scales and zero points."""
    names = schema_inputs(operator.op_type, domain)
    for original in operator.cases():
        for retyped, scaled, ends in itertools.product(RETYPED, (False, True), ENDS):
            changed = varied(retyped(original), names, random, ties=scaled, ends=ends)
            slots = [i for i, x in enumerate(original.inputs) if is_drawn(names, i, x)]
            for case in sizes(changed, slots):
                model = builder.integer_model(operator, domain, case)
                try:
                    session = builder.session(model)
                    feed(session, case, list(case.inputs))
                except Exception:  # types or shapes that it does not take
                    if retyped is as_it_is and case is changed:
                        raise
                    continue
                yield node_validation(operator, case, session, names, f"'{case.name}', {ends}")
                break


def as_it_is(case: Case) -> Case:
    """The case."""
    return case


def signed(case: Case) -> Case:
    """The case with int8 in place of uint8."""
    return dataclasses.replace(case, inputs=tuple(flipped(x, np.uint8) for x in case.inputs))


def unsigned(case: Case) -> Case:
    """The case with uint8 in place of int8."""
    return dataclasses.replace(case, inputs=tuple(flipped(x, np.int8) for x in case.inputs))


def flipped(x: Array | None, old: type[np.uint8 | np.int8]) -> Array | None:
    """Integers of type `old` shifted by 128 into the other 8-bit type."""
    if x is None or x.dtype != old:
        return x
    return (np.asarray(x, np.uint8 if old is np.uint8 else np.int8).view(np.uint8) ^ 128).view(
        np.int8 if old is np.uint8 else np.uint8
    )


RETYPED = (as_it_is, signed, unsigned)
ENDS = ("fitted", "low", "high")


def kind(names: list[str], slot: int) -> str:
    """Kind of an input slot: "scale", "zero", or "data" (shapes and indices too)."""
    if slot >= len(names) - 1 and names[-1] == "inputs":  # QLinearConcat: triples without end
        return ("data", "scale", "zero")[(slot - len(names) + 1) % 3]
    name = names[slot].lower()
    return "scale" if "scale" in name else "zero" if "zero" in name else "data"


def is_drawn(names: list[str], slot: int, x: Array | None) -> bool:
    """Whether random integers or reals take the place of x."""
    return x is not None and x.dtype.name in DRAWN and kind(names, slot) == "data"


def schema_inputs(op_type: str, domain: str) -> list[str]:
    """Names of the inputs; com.microsoft's are known to ONNX Runtime alone."""
    if domain == "":
        return [value.name for value in onnx.defs.get_schema(op_type).inputs]
    (schema,) = [
        s for s in ort_state.get_all_operator_schema() if (s.name, s.domain) == (op_type, domain)
    ]
    return [value.name for value in schema.inputs]


def varied(
    case: Case, names: list[str], random: np.random.Generator, *, ties: bool, ends: str
) -> Case:
    """The case with other scales, zero points, and constants."""
    inputs: Inputs = []
    for i, x in enumerate(case.inputs):
        inputs.append(x)
        if x is None:
            continue
        if kind(names, i) == "scale" and x.dtype == np.float32:
            scale = x.astype(np.float32) * random.uniform(0.3, 3, x.shape)
            inputs[i] = np.asarray(2 ** np.round(np.log2(scale)) if ties else scale, np.float32)
        elif kind(names, i) == "zero" and x.dtype in (np.uint8, np.int8):
            limits = np.iinfo(x.dtype.name)
            value = {"low": limits.min, "high": limits.max}.get(ends)
            inputs[i] = x if value is None else np.full_like(x, value)
        elif is_drawn(names, i, x):
            inputs[i] = other(x, random)
    return dataclasses.replace(case, inputs=tuple(inputs))


def other(x: Array, random: np.random.Generator) -> Array:
    """Random integers, or reals over several magnitudes, in place of x."""
    if x.dtype != np.float32:
        limits = np.iinfo(x.dtype.name)
        return np.asarray(random.integers(limits.min, limits.max, x.shape, endpoint=True), x.dtype)
    return np.asarray(random.standard_normal(x.shape) * 10 ** random.uniform(-3, 3), np.float32)


def node_validation(
    operator: IntegerOperator, case: Case, session: InferenceSession, names: list[str], label: str
) -> Validation:
    """The node in a session of its own."""

    def draw(random: np.random.Generator) -> Inputs:
        return [
            x if x is None or i in case.constants or not is_drawn(names, i, x) else other(x, random)
            for i, x in enumerate(case.inputs)
        ]

    integers = [
        short(x.dtype) for i, x in enumerate(case.inputs) if x is not None and is_drawn(names, i, x)
    ]

    def call(inputs: Sequence[Array | None]) -> IntegerCall:
        return IntegerCall(operator.op_type, inputs, attributes=case.attributes or {})

    return Validation(
        "".join(integers[:2]) or short(np.asarray(case.inputs[0]).dtype),
        draw,
        lambda inputs: feed(session, case, inputs),
        lambda inputs: operator.kernel(call(inputs)),
        lambda inputs: operator.bound(call(inputs)),
        kind="exact" if operator.bound(call(case.inputs)) is None else "bound()",
        label=label,
    )
