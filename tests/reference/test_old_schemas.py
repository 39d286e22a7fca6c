"""Every operator with a kernel, in every schema that it has had since opset 7, on ONNX Runtime."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as refusals

from onnxq import catalog, reference
from onnxq.checking.cross_check import cross_check
from onnxq.operator import IntegerOperator, Operator, Rule
from onnxq.operator.examples import normal
from onnxq.reference.ops import move_of, on_machine
from tests.operators import builder
from tests.operators.old_cases import old_cases, versions
from tests.this_machine import SATURATION_MODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.operator import Array, Case

Known = Operator | IntegerOperator
REFUSED = (
    refusals.Fail,
    refusals.InvalidArgument,
    refusals.InvalidGraph,
    refusals.NotImplemented,
    refusals.RuntimeException,
    onnx.shape_inference.InferenceError,
)
"""Errors at loading: that opset cannot say it, or ONNX Runtime has no kernel for these types."""


def known() -> list[Known]:
    """Operators of ai.onnx that have a kernel."""
    moving = [
        op
        for op in catalog.all_operators()
        if not op.domain and catalog.find_integer(op.op_type) is not None
    ]
    return [*moving, *(op for op in catalog.all_integer_operators() if "" in op.domains)]


def on_integers(operator: Known, case: Case) -> Case:
    """The case with integers in place of its reals; scales stay what they are."""
    if isinstance(operator, IntegerOperator):
        return case
    reals = [x for x in case.inputs if x is not None and x.dtype == np.float32]
    moved = reals[:1] if operator.op_type == "Resize" else reals
    top = max((float(np.abs(x).max(initial=0)) for x in moved), default=0.0) or 1.0
    integers = [
        np.asarray(np.clip(np.asarray(x, np.float32) / top * 127 + 128, 0, 255), np.uint8)
        if x is not None and any(x is each for each in moved)
        else x
        for x in case.inputs
    ]
    return dataclasses.replace(case, inputs=tuple(integers))


def by_reference(model: onnx.ModelProto, case: Case) -> Sequence[Array]:
    opsets = {"": case.opset}
    classes = on_machine(SATURATION_MODE)
    runner = reference.node_runner(model.graph.node[0], opsets, case.inputs, classes)
    return reference.run_node(runner, case.inputs, {})


@pytest.mark.parametrize("operator", known(), ids=lambda op: op.op_type)
def test_on_integers_every_schema_gives_what_onnx_runtime_gives(operator: Known) -> None:
    for opset in versions(operator.op_type):
        for old in old_cases(operator, opset):
            case = on_integers(operator, old)
            model = builder.one_node(operator.op_type, case)
            try:
                wanted = builder.run(model, case, case.inputs)
            except REFUSED:
                continue
            got = by_reference(model, case)
            for ours, theirs in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(ours, theirs, f"opset {opset}, {case.name}")
                assert ours.dtype == theirs.dtype


@pytest.mark.parametrize(
    ("op_type", "opset"),
    [
        *(("Pad", 11), ("ReduceMax", 12), ("Resize", 10), ("Slice", 7), ("Split", 7)),
        *(("Split", 11), ("Squeeze", 11), ("Unsqueeze", 7), ("Unsqueeze", 11)),
    ],
)
def test_arguments_that_have_moved_since_are_among_them(op_type: str, opset: int) -> None:
    operator = builder.operator(op_type)
    ran = 0
    for old in old_cases(operator, opset):
        case = on_integers(operator, old)
        try:
            builder.run(builder.one_node(operator.op_type, case), case, case.inputs)
        except REFUSED:
            continue
        ran += 1
    assert ran >= 3
    moved = move_of(op_type, opset)
    assert moved.attributes or moved.meant or op_type == "Pad"


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.5, 3.0])
def test_resize_of_opset_10_rounds_up_where_it_shrinks(factor: float) -> None:
    x = np.arange(7, dtype=np.uint8) * 9
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 10]>'
        "g (uint8[7] x, float[1] s) => (uint8[N] y) { y = Resize(x, s) }"
    )
    feeds = {"x": x, "s": np.array([factor], np.float32)}
    (wanted,) = builder.session(model).run(None, feeds)
    (got,) = reference.evaluator(model).run(None, feeds)
    assert got.tolist() == wanted.tolist()


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 1.5), (1, 1, 0.5, 0.7), (1, 1, 0.5, 3)], ids=str)
def test_floats_are_resized_as_in_opset_10(mode: str, scales: tuple[float, ...]) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 10]> g (float[1,2,6,7] x, float[4] s) => '
        f'(float[A,B,C,D] y) {{ y = Resize <mode = "{mode}"> (x, s) }}'
    )
    feeds = {"x": normal(1, 2, 6, 7), "s": np.array(scales, np.float32)}
    (wanted,) = builder.session(model).run(None, feeds)
    (got,) = reference.evaluator(model).run(None, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("node", ["s", "s <axis = 1>", "s <axis = -1>", "s <axis = 2>"])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 12, 13])
def test_floats_are_summed_over_the_axes_of_their_opset(
    op_type: str, opset: int, node: str
) -> None:
    attributes = node.removeprefix("s")
    if opset < 11 and "-1" in attributes:
        return  # an axis from the end is of opset 11
    same_outputs(
        f'<ir_version: 6, opset_import: ["": {opset}]> '
        f"g (float[2,3,4] x) => (float[2,3,4] y) {{ y = {op_type} {attributes} (x) }}",
        normal(2, 3, 4),
    )


@pytest.mark.parametrize("opset", [7, 8, 9, 13, 14, 15])
def test_batch_norm_of_floats_takes_the_stored_mean(opset: int) -> None:
    same_outputs(
        f'<ir_version: 6, opset_import: ["": {opset}]> '
        "g (float[2,3,4,4] x) => (float[2,3,4,4] y) "
        "<float[3] s = {1, 2, -3}, float[3] b = {0.5, 1, 2}, float[3] m = {1, 0, -1}, "
        "float[3] v = {2, 1, 0.25}> { y = BatchNormalization (x, s, b, m, v) }",
        normal(2, 3, 4, 4),
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("opset", "end"), [(7, ", scales = [1.0, 1.0, 2.0, 3.0]> (x)"),
                                            (9, "> (x, s)")])  # fmt: skip
def test_floats_are_upsampled_as_in_their_opset(opset: int, end: str, mode: str) -> None:
    same_outputs(
        f'<ir_version: 6, opset_import: ["": {opset}]> '
        "g (float[1,2,3,4] x) => (float[1,2,6,12] y) <float[4] s = {1, 1, 2, 3}> "
        f'{{ y = Upsample <mode = "{mode}"{end} }}',
        normal(1, 2, 3, 4),
    )


def same_outputs(text: str, x: Array) -> None:
    """Holds the evaluator's floats against ONNX Runtime's."""
    model = onnx.parser.parse_model(text)
    (wanted,) = builder.session(model).run(None, {"x": x})
    (got,) = reference.evaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_split_of_opset_11_cuts_as_its_attribute_says() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 6, opset_import: ["": 11]> g (float[1,4] x) => (uint8[1,1] a, uint8[1,3] b)
    <float s = {0.1}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)
        a, b = Split <axis = 1, split = [1, 3]> (q)
    }""")
    x = np.array([[1, 2, 3, 4]], np.float32)
    a, b = reference.evaluator(model).run(None, {"x": x})
    assert a.tolist() == [[138]]
    assert b.tolist() == [[148, 158, 168]]
    cross_check(model, [{"x": x}]).check()


@pytest.mark.nightly
@pytest.mark.parametrize("operator", catalog.all_operators(), ids=lambda op: op.op_type)
def test_between_integers_every_schema_is_predicted(operator: Operator) -> None:
    for opset in versions(operator.op_type) if not operator.domain else ():
        for case in old_cases(operator, opset):
            if any(x is not None and 0 in x.shape for x in case.inputs):
                continue  # an empty batch: cross_check wants samples
            try:
                if not isinstance(builder.rule(operator, case), Rule):
                    continue
                plan = builder.plan_of(operator, case, builder.Types())
            except REFUSED:  # of the float model
                continue
            integers = builder.integers_of(case, plan)
            model = builder.qdq_model(operator, case, plan, integers, oldest=opset)
            try:
                builder.session(model)
            except REFUSED:
                continue
            feeds = {
                f"in{i}": x
                for i, x in enumerate(integers)
                if x is not None and i not in case.constants
            }
            found = cross_check(model, [feeds])
            wrong = [n for n in found.nodes if n.differing or n.problem]
            far = [o for o in found.outputs if o.differing and not found.is_rounding(o)]
            problems = [*wrong, *far, *found.unchecked, *filter(None, [found.end_to_end])]
            assert not problems, f"opset {opset}, {case.name}: {problems}"
