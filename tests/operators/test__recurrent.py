from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq import reference, targets
from onnxq.dtypes import INT4, UINT8
from onnxq.errors import UnsupportedError
from onnxq.observers import NoopObserver
from onnxq.operator import Case, Float, Precision
from onnxq.operator.examples import normal
from onnxq.operators.gru import GRU
from onnxq.operators.rnn import RNN
from onnxq.pipeline import plan_dynamic
from onnxq.qparams import PerChannel, PerTensor, QParams
from tests import this_machine
from tests.operators import builder
from tests.operators.dynamic_builder import SYMMETRIC, quantized
from tests.operators.dynamic_case import dynamic_model, dynamic_rule_of, fitted, stored
from tests.operators.recurrent_bound import Net

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.operator import Array, Operator

OPERATORS = (GRU(), RNN())
INTEGER, STORED, HALF = Precision.DYNAMIC_INT8, Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16
CASES = [
    pytest.param(operator, case, id=f"{operator.op_type}-{case.name}")
    for operator in OPERATORS
    for case in operator.cases()
]
FLOAT_NOISE = 1e-5  # sums of five terms in float32, over five steps, through Relu of gain 2
CHAOS = 10.0  # weights this many times PyTorch's initial ones: float32 itself departs from float64
FUNCTIONS: dict[str, tuple[float | None, float | None]] = {
    "Relu": (None, None),
    "Tanh": (None, None),
    "Sigmoid": (None, None),
    "Softsign": (None, None),
    "Softplus": (None, None),
    "LeakyRelu": (0.3, None),
    "ThresholdedRelu": (0.2, None),
    "Elu": (0.7, None),
    "Affine": (0.4, 0.1),
    "HardSigmoid": (0.25, 0.4),
    "ScaledTanh": (0.8, 0.6),
}


def time_first(case: Case) -> Case:
    """The same net with layout 0, which ONNX Runtime has."""
    attributes = dict(case.attributes or {})
    if not attributes.pop("layout", 0):
        return case
    swapped = tuple(
        np.swapaxes(x, 0, 1) if x is not None and i in (0, 5) else x
        for i, x in enumerate(case.inputs)
    )
    return dataclasses.replace(case, inputs=swapped, attributes=attributes)


def in_layout(case: Case, results: list[Array]) -> list[Array]:
    """Results of layout 0 in the case's own."""
    if not (case.attributes or {}).get("layout"):
        return results
    orders = ((2, 0, 1, 3), (1, 0, 2))
    return [np.transpose(y, order) for y, order in zip(results, orders, strict=False)]


def float_results(operator: Operator, case: Case) -> list[Array]:
    return in_layout(case, builder.run_float(operator, time_first(case)))


def shrunk(case: Case) -> Case:
    """The same with weights of a trained net's size, so that errors do not grow on the way."""
    small = tuple(
        x if x is None or i not in (1, 2, 3) else np.asarray(x, np.float32) * np.float32(0.3)
        for i, x in enumerate(case.inputs)
    )
    return dataclasses.replace(case, inputs=small)


def feeds(case: Case) -> dict[str, Array]:
    named = enumerate(zip(builder.names(case), case.inputs, strict=True))
    return {name: x for i, (name, x) in named if x is not None and i not in case.constants}


def run(model: ir.Model | onnx.ModelProto, given: dict[str, Array]) -> list[Array]:
    return [np.asarray(y) for y in builder.session(model).run(None, given)]


def distance(y: Array, wanted: Array) -> float:
    assert y.shape == wanted.shape
    assert y.dtype == wanted.dtype
    return float(np.abs(np.asarray(y, np.float64) - np.asarray(wanted, np.float64)).max())


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_the_reference_equals_onnx_runtime_bit_for_bit_in_integers(
    operator: Operator, case: Case
) -> None:
    model = dynamic_model(operator, case, INTEGER)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    wanted, got = run(model, feeds(case)), this_machine.evaluator(model).run(None, feeds(case))
    for y, ort in zip(got, wanted, strict=True):
        assert np.array_equal(y, ort)


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_integers_are_near_float(operator: Operator, case: Case) -> None:
    """Bounded exactly below; here every input and attribute, so that nothing is mixed up."""
    case = shrunk(case)
    results = this_machine.run_exactly(dynamic_model(operator, case, INTEGER), feeds(case))
    for y, wanted in zip(results, float_results(operator, case), strict=True):
        assert distance(y, wanted) < 0.02


@pytest.mark.parametrize(("operator", "case"), CASES)
def test_the_float_reference_is_within_rounding_of_onnx_runtime(
    operator: Operator, case: Case
) -> None:
    got = reference.evaluator(builder.float_model(operator, case)).run(None, feeds(case))
    for y, wanted in zip(got, float_results(operator, case), strict=True):
        assert distance(y, wanted) < FLOAT_NOISE


@pytest.mark.parametrize(("operator", "case"), CASES)
@pytest.mark.parametrize("form", [STORED, HALF])
def test_stored_weights_give_the_float_node_on_rounded_weights(
    operator: Operator, case: Case, form: Precision
) -> None:
    rounded = list(case.inputs)
    for weight in dynamic_rule_of(operator, case).weights:
        values, axis = stored(np.asarray(case.inputs[weight.slot]), weight)
        near = values.astype(np.float16).astype(np.float32)
        if form is STORED:
            scale = fitted(values, axis).scale
            near = np.rint(values / scale) * scale
        assert weight.perm is not None
        rounded[weight.slot] = np.transpose(near, np.argsort(weight.perm))
    wanted = float_results(operator, dataclasses.replace(case, inputs=tuple(rounded)))
    for y, z in zip(run(dynamic_model(operator, case, form), feeds(case)), wanted, strict=True):
        assert distance(y, z) < FLOAT_NOISE


@pytest.mark.parametrize("form", [STORED, HALF])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_onnx_runtime_folds_stored_weights_when_it_loads_them(
    operator: Operator, form: Precision, tmp_path: Path
) -> None:
    model = dynamic_model(operator, next(iter(operator.cases())), form)
    floats = [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.FLOAT]
    assert all(v.const_value is not None and v.const_value.size <= 12 for v in floats)  # scales
    assert builder.optimized_ops(ir.to_proto(model), tmp_path) == [operator.op_type]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_one_matmul_serves_all_steps_and_both_directions(
    operator: Operator, tmp_path: Path
) -> None:
    case = next(case for case in operator.cases() if case.name == "both directions")
    proto = ir.to_proto(dynamic_model(operator, case, INTEGER))
    found = builder.optimized_ops(proto, tmp_path)
    assert found.count("DynamicQuantizeMatMul") == 1
    assert found.count("Scan") == 2
    assert not {"MatMulInteger", "DynamicQuantizeLinear", "Reshape", "Gather"} & set(found)
    bodies = [
        [node.op_type for node in attribute.g.node]
        for node in onnx.load(tmp_path / "optimized.onnx").graph.node
        for attribute in node.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
    ]
    for body in bodies:
        assert body.count("DynamicQuantizeMatMul") == 1
        assert "MatMulInteger" not in body


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_every_activation_is_that_of_onnx_runtime(operator: Operator, name: str) -> None:
    alpha, beta = FUNCTIONS[name]
    base = next(case for case in operator.cases() if case.name == "both directions")
    both = ["Tanh", name] if operator.op_type == "RNN" else [name, "Tanh", "Sigmoid", name]
    uses = both.count(name)
    attributes = dict(base.attributes or {}) | {"activations": both}
    for key, value in (("activation_alpha", alpha), ("activation_beta", beta)):
        if value is None:
            continue
        attributes[key] = [value] * (len(both) if operator.op_type == "RNN" else uses)
    case = dataclasses.replace(shrunk(base), attributes=attributes)
    wanted = builder.run_float(operator, case)
    exact = reference.evaluator(builder.float_model(operator, case)).run(None, feeds(case))
    for y, z in zip(exact, wanted, strict=True):
        assert distance(y, z) < FLOAT_NOISE
    results = this_machine.run_exactly(dynamic_model(operator, case, INTEGER), feeds(case))
    for y, z in zip(results, wanted, strict=True):
        # an integer more or less at the step of ThresholdedRelu jumps by alpha
        assert distance(y, z) < (0.25 if name == "ThresholdedRelu" else 0.03)


def test_a_function_that_onnx_does_not_have_is_refused() -> None:
    case = Case("odd", next(iter(RNN().cases())).inputs, (1, 2), {"activations": ["Swish"]}, 2)
    with pytest.raises(UnsupportedError, match="Swish"):
        dynamic_model(RNN(), case, INTEGER)


def test_weights_computed_at_run_time_stay_float() -> None:
    case = next(iter(GRU().cases()))
    found = GRU().dynamic_rule(builder.node_of(GRU(), dataclasses.replace(case, constants=(1,))))
    assert isinstance(found, Float)
    assert "R is computed" in found.reason.words


def test_integers_want_bytes() -> None:
    case = next(iter(GRU().cases()))
    arrays = [
        stored(np.asarray(case.inputs[w.slot]), w) for w in dynamic_rule_of(GRU(), case).weights
    ]
    narrow = [fitted(w, axis, INT4) for w, axis in arrays]
    with pytest.raises(UnsupportedError, match=r"int4.*precision: weight_only\."):
        dynamic_model(GRU(), case, INTEGER, narrow)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_zero_points_and_one_scale_are_honoured(operator: Operator, per_channel: bool) -> None:
    case = next(case for case in operator.cases() if case.name == "all inputs")
    found = []
    for weight in dynamic_rule_of(operator, case).weights:
        w, axis = stored(np.asarray(case.inputs[weight.slot]), weight)
        assert axis is not None
        others = tuple(i for i in range(w.ndim) if i != axis or not per_channel)
        low = np.minimum(w.min(axis=others), 0).astype(np.float32)
        high = np.maximum(w.max(axis=others), 0).astype(np.float32)
        scale = np.asarray((high - low) / np.float32(255))
        points = np.rint(-low / scale).astype(np.uint8)
        granularity = PerChannel(axis) if per_channel else PerTensor()
        found.append(QParams(scale, points, UINT8, granularity))
    model = dynamic_model(operator, case, INTEGER, found)
    wanted, got = run(model, feeds(case)), this_machine.evaluator(model).run(None, feeds(case))
    for y, ort in zip(got, wanted, strict=True):
        assert np.array_equal(y, ort)
    if operator.op_type == "GRU":
        assert distance(wanted[0], builder.run_float(operator, case)[0]) < 0.1


@pytest.mark.parametrize("magnitude", [0.1, 1.0, 4.0, 16.0])
@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_integers_stay_within_the_derived_bound_of_float(
    operator: Operator, linear: int, magnitude: float
) -> None:
    hidden, size, steps, batch = 16, 8, 12, 3
    gates = 3 if operator.op_type == "GRU" else 1
    random = np.random.default_rng(int(10 * magnitude) + linear)
    reach = magnitude / np.sqrt(hidden)

    def drawn(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return random.uniform(-reach, reach, shape).astype(np.float32)

    x = random.standard_normal((steps, batch, size)).astype(np.float32)
    w, r = drawn(1, gates * hidden, size), drawn(1, gates * hidden, hidden)
    bias = drawn(1, 2 * gates * hidden)
    attributes = {"hidden_size": hidden}
    if operator.op_type == "GRU":
        attributes["linear_before_reset"] = linear
    case = Case("drawn", (x, w, r, bias), (1, 2, 3), attributes, 1)
    scales = {s: fitted(case.inputs[s], 1).scale for s in (1, 2)}  # type: ignore[arg-type]
    net = Net(
        *(a.astype(np.float64) for a in (w[0], r[0], bias[0], scales[1], scales[2])),
        linear=bool(linear),
    )
    states, bound = net.bound(x.astype(np.float64))
    if magnitude < CHAOS:
        plain = np.asarray(builder.run_float(operator, case)[0][:, 0], np.float64)
        assert np.abs(states - plain).max() < FLOAT_NOISE
    model = dynamic_model(operator, case, INTEGER)
    got = np.asarray(this_machine.run_exactly(model, feeds(case))[0][:, 0], np.float64)
    assert (np.abs(got - states) <= bound).all()
    if magnitude == 0.1:
        assert bound.max() < 0.05  # says something: states reach 0.3


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_batch_and_sequence_may_change_from_run_to_run(operator: Operator) -> None:
    case = next(case for case in operator.cases() if case.name == "all inputs")
    proto = builder.float_model(operator, shrunk(case))
    sizes = {"in0": ("steps", "batch", 3), "in4": ("batch",), "in5": (2, "batch", 4)}
    for value in proto.graph.input:
        for place, size in zip(value.type.tensor_type.shape.dim, sizes[value.name], strict=True):
            place.Clear()
            if isinstance(size, int):
                place.dim_value = size
            else:
                place.dim_param = size
    for value in proto.graph.output:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model = quantized(proto, INTEGER)
    assert "Scan" in {node.op_type for node in model.graph.all_nodes()}
    ours, plain, session = (
        this_machine.evaluator(model),
        builder.session(proto),
        builder.session(model),
    )
    for steps, batch in ((1, 1), (4, 3), (7, 2)):
        random = np.random.default_rng(steps)
        given = {
            "in0": random.standard_normal((steps, batch, 3)).astype(np.float32),
            "in4": random.integers(1, steps + 1, batch).astype(np.int32),
            "in5": random.standard_normal((2, batch, 4)).astype(np.float32),
        }
        results = [np.asarray(y) for y in session.run(None, given)]
        for y, wanted in zip(results, plain.run(None, given), strict=True):
            assert distance(y, np.asarray(wanted)) < 0.03
        for y, wanted in zip(ours.run(None, given), results, strict=True):
            assert np.array_equal(y, wanted)


def test_a_sequence_without_a_step_ends_in_zeros_as_in_onnx_runtime() -> None:
    case = next(case for case in GRU().cases() if case.name == "all inputs")
    inputs = (*case.inputs[:4], np.array([0, 3], np.int32), case.inputs[5])
    case = dataclasses.replace(case, inputs=inputs)
    wanted = builder.run_float(GRU(), case)
    got = run(dynamic_model(GRU(), case, INTEGER), feeds(case))
    for y, ort in zip(got, wanted, strict=True):
        assert distance(y, ort) < 0.1
    assert not got[1][:, 0].any()


def test_a_second_node_beside_it_keeps_its_names_apart() -> None:
    case = next(case for case in GRU().cases() if case.name == "linear before reset")
    proto = builder.float_model(GRU(), case)
    twin = onnx.NodeProto()
    twin.CopyFrom(proto.graph.node[0])
    twin.name = "twin"
    del twin.output[:]
    twin.output.extend(["twin0", "twin1"])
    proto.graph.node.append(twin)
    proto.graph.output.extend(
        [helper.make_tensor_value_info("twin0", onnx.TensorProto.FLOAT, None)]
    )
    model = onnxq.quantize_dynamic(proto, objective="size")
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    results = run(model, feeds(case))
    assert np.array_equal(results[0], results[2])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_no_constant_is_left_that_nothing_reads(operator: Operator) -> None:
    """The float bias is rearranged; ONNX Runtime refuses a model that hands it in memory unread."""
    case = next(case for case in operator.cases() if case.name == "both directions")
    model = quantized(builder.float_model(operator, case), INTEGER)
    for value in model.graph.initializers.values():
        assert value.uses(), value.name


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_the_cross_check_finds_no_difference_end_to_end(operator: Operator) -> None:
    case = next(case for case in operator.cases() if case.name == "both directions")
    model = quantized(builder.float_model(operator, case), INTEGER)
    found = onnxq.cross_check(model, [feeds(case)])
    assert not found.end_to_end
    assert all(output.differing == 0 for output in found.outputs)
    assert not found.unchecked
    assert not any(node.differing for node in found.nodes)


@pytest.mark.parametrize("form", [INTEGER, STORED, HALF])
@pytest.mark.parametrize("name", ["all inputs", "batch first"])
@pytest.mark.parametrize("absent", [0, 1])
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.op_type)
def test_the_node_has_only_the_outputs_that_are_asked_for(
    operator: Operator, absent: int, name: str, form: Precision
) -> None:
    case = shrunk(next(case for case in operator.cases() if case.name == name))
    proto = builder.float_model(operator, case)
    proto.graph.node[0].output[absent] = ""
    kept = proto.graph.output[1 - absent].name
    del proto.graph.output[absent]
    half = NoopObserver.with_args(dtype="float16")
    model = quantized(proto, form, half if form is HALF else SYMMETRIC)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert model.graph.outputs[0].name == kept
    wanted = float_results(operator, case)[1 - absent]
    assert distance(run(model, feeds(case))[0], wanted) < 0.05


def test_speed_does_not_leave_in_float_what_onnx_runtime_does_not_run() -> None:
    attributes = {"hidden_size": 32}
    arrays = (normal(2, 3, 32), normal(1, 96, 32, seed=1), normal(1, 96, 32, seed=2))
    floats = {}
    for layout in (0, 1):
        case = Case("small", arrays, (1, 2), attributes | {"layout": layout}, 2)
        target = dataclasses.replace(
            targets.find("portable"),
            dynamic_speedups=tuple(
                targets.DynamicSpeedup("GRU", form, 8, 32, 96, rows, 0.5)
                for form in ("dynamic_int8", "weight_only")
                for rows in (1, 8)
            ),
        )
        _, plan = plan_dynamic(builder.float_model(GRU(), case), target=target)
        floats[layout] = plan.slower
    assert floats[0]
    assert not floats[1]
