from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, Float, Site
from onnxq.operator.examples import normal
from onnxq.operators.conv_transpose import ConvTranspose
from onnxq.qparams import PerChannel, PerTensor, QParams
from tests.operators import builder
from tests.operators.builder import MICROSOFT, Types

OP = ConvTranspose()
CASES = {case.name: case for case in OP.cases()}
GROUPED = Case(
    "groups",
    (normal(1, 4, 3, 3), normal(4, 3, 3, 3, seed=1), normal(6, seed=2)),
    (1, 2),
    {"group": 2, "strides": [2, 2]},
)


def lowered(case: Case) -> ir.Model:
    plan = builder.plan_of(OP, case, Types())
    return builder.lowered_model(OP, case, plan, builder.integers_of(case, plan))


def ops(case: Case) -> list[str]:
    return [node.op_type for node in lowered(case).graph]


def test_unit_strides_are_one_convolution() -> None:
    assert ops(CASES["depthwise, unit strides"]) == ["QLinearConv"]


def test_phases_are_one_convolution_and_moves_of_integers() -> None:
    found = ops(CASES["k2 s2, no bias"])
    assert found.count("QLinearConv") == 1
    assert set(found) == {"QLinearConv", "Transpose", "Reshape"}


def test_phases_take_the_fewest_taps_and_cut_off_the_overhang() -> None:
    graph = lowered(CASES["k4 s2 p1"]).graph
    weight = next(node for node in graph if node.op_type == "QLinearConv").inputs[3]
    assert weight is not None
    assert weight.shape == (4 * 3, 4, 2, 2)  # three taps per axis would need no Slice
    assert [node.op_type for node in graph].count("Slice") == 1


def test_taps_that_a_phase_lacks_are_zero_points() -> None:
    case = dataclasses.replace(CASES["k3 s2 p1, output_padding"], constants=(1, 2))
    plan = builder.plan_of(OP, case, Types(w=UINT8))
    graph = builder.lowered_model(OP, case, plan, builder.integers_of(case, plan)).graph
    weight = next(node for node in graph if node.op_type == "QLinearConv").inputs[3]
    assert weight is not None
    assert weight.const_value is not None
    assert np.count_nonzero(weight.const_value.numpy() == 128) >= 4 * 3 * (16 - 9)


@pytest.mark.parametrize("name", ["k4 s2 p1", "groups", "3d", "1d", "SAME_LOWER"])
def test_spatial_sizes_need_not_be_known(name: str) -> None:
    case = CASES[name]
    plan = builder.plan_of(OP, case, Types())
    integers = builder.integers_of(case, plan)
    node = builder.node_of(OP, case)
    x = node.inputs[0]
    assert x is not None
    x.shape = None
    tape = Tape()
    values = [
        ir.val("in0", ir.DataType.UINT8, [None] * np.asarray(integers[0]).ndim),
        *(
            tape.initializer(ir.tensor(np.asarray(c)), name=f"in{i}")
            for i, c in enumerate(integers)
            if i
        ),
    ]
    (y,) = OP.lower(Site(tape, node, values, plan))
    y.name = "out0"
    graph = ir.Graph(
        values[:1],
        [y],
        nodes=tape.nodes,
        initializers=tape.initializers,
        opset_imports={"": 21, MICROSOFT: 1},
        name="unknown",
    )
    (got,) = builder.run_exactly(ir.Model(graph, ir_version=builder.IR_VERSION), case, integers)
    (wanted,) = OP.kernel(Call(OP.op_type, integers, plan, attributes=case.attributes or {}))
    assert np.array_equal(got, wanted)


def test_output_shape_needs_the_size_of_the_input() -> None:
    node = builder.node_of(OP, CASES["output_shape"])
    x = node.inputs[0]
    assert x is not None
    x.shape = ir.Shape(["N", 4, "H", "W"])
    verdict = OP.rule(node)
    assert isinstance(verdict, Float)
    assert "output_shape" in verdict.reason.words


@pytest.mark.parametrize(("constants", "part"), [((), "weight"), ((1,), "bias")])
def test_what_is_computed_at_run_time_stays_float(constants: tuple[int, ...], part: str) -> None:
    verdict = builder.rule(OP, dataclasses.replace(CASES["plain"], constants=constants))
    assert isinstance(verdict, Float)
    assert part in verdict.reason.words


def test_groups_share_scales_and_depthwise_has_one_per_channel() -> None:
    axes = {
        name: rule.weight.axis
        for name in ("plain", "groups", "depthwise")
        if (rule := builder.rule_of(OP, CASES[name])).weight is not None
    }
    assert axes == {"plain": 1, "groups": 1, "depthwise": 0}
    assert builder.rule_of(OP, CASES["plain"]).lowered


def test_a_depthwise_one_stays_depthwise_on_a_copy_per_phase() -> None:
    graph = lowered(CASES["depthwise"]).graph
    copies, convolution = graph[0], graph[1]
    assert (copies.op_type, len(copies.inputs)) == ("Concat", 4)
    assert convolution.attributes.get_int("group") == 16
    assert not builder.rule_of(OP, CASES["depthwise"]).saturating_pairs
    assert builder.rule_of(OP, CASES["groups"]).saturating_pairs


def test_kernel_equals_onnx_runtime_with_one_scale_for_the_weight() -> None:
    plan = builder.plan_of(OP, GROUPED, Types())
    w, b = (p for p in plan.inputs[1:] if p is not None)
    w = QParams(w.scale[0], w.zero_point[0], w.dtype, PerTensor())
    b = QParams(b.scale[0], b.zero_point[0], b.dtype, PerTensor())
    plan = dataclasses.replace(plan, inputs=(plan.inputs[0], w, b))
    integers = builder.integers_of(GROUPED, plan)
    (wanted,) = builder.run_exactly(
        builder.lowered_model(OP, GROUPED, plan, integers), GROUPED, integers
    )
    assert np.array_equal(
        OP.kernel(Call(OP.op_type, integers, plan, attributes=GROUPED.attributes or {}))[0], wanted
    )


def test_kernel_names_the_shapes_that_do_not_fit() -> None:
    plan = builder.plan_of(OP, GROUPED, Types())
    x, w, b = builder.integers_of(GROUPED, plan)
    assert x is not None
    assert w is not None
    attributes = GROUPED.attributes or {}
    with pytest.raises(ShapeError, match="channels"):
        OP.kernel(Call(OP.op_type, (x[:, :3], w, b), plan, attributes=attributes))
    with pytest.raises(ShapeError, match="bias of shape"):
        OP.kernel(Call(OP.op_type, (x, w, np.zeros(5, np.int32)), plan, attributes=attributes))
    with pytest.raises(ShapeError, match="same rank"):
        OP.kernel(Call(OP.op_type, (x[..., 0], w, b), plan, attributes=attributes))
    with pytest.raises(ShapeError, match="kernel_shape"):
        OP.kernel(
            Call(OP.op_type, (x, w, b), plan, attributes={**attributes, "kernel_shape": [2, 3]})
        )
    with pytest.raises(ShapeError, match="-3 elements"):
        OP.kernel(
            Call(OP.op_type, (x, w, b), plan, attributes={**attributes, "pads": [5, 0, 5, 0]})
        )
    with pytest.raises(ShapeError, match="auto_pad"):
        OP.kernel(Call(OP.op_type, (x, w, b), plan, attributes={**attributes, "auto_pad": "SAME"}))


def test_kernel_refuses_scales_along_the_wrong_axis() -> None:
    plan = builder.plan_of(OP, GROUPED, Types())
    w = plan.inputs[1]
    assert w is not None
    scale = np.ones(4, np.float32)
    wrong = QParams(scale, np.zeros(4, np.int8), w.dtype, PerChannel(0))
    plan = dataclasses.replace(plan, inputs=(plan.inputs[0], wrong, plan.inputs[2]))
    integers = builder.integers_of(GROUPED, builder.plan_of(OP, GROUPED, Types()))
    with pytest.raises(ShapeError, match="along axis 1"):
        OP.kernel(Call(OP.op_type, integers, plan, attributes=GROUPED.attributes or {}))
