from __future__ import annotations

import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.checking.execution import execution
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import model, weights

X = weights(3, 1, 8, 4, 6, 6)
BATCHES = [{"x": X}]


def volumes() -> onnx.ModelProto:
    """Two convolutions over volumes, which are faster in float; the head reads the second."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1] * 6),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second", pads=[1] * 6),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3"], ["y"], "head"),
    ]
    constants = {
        "w1": weights(0, 8, 8, 3, 3, 3),
        "w2": weights(1, 8, 8, 3, 3, 3),
        "w3": weights(2, 8, 10),
    }
    return model(nodes, constants, {"x": X.shape})


def planned(objective: str, mapping: QConfigMapping | None = None) -> Plan:
    prepared = prepare(volumes(), mapping, "x86-vnni")
    return plan(prepared, calibrate(prepared, BATCHES), Objective(objective))


def forms(made: Plan) -> dict[str, Precision]:
    return {name: chosen.precision for name, chosen in made.precisions.items()}


def test_size_stores_the_weights_of_float_nodes_and_keeps_their_reasons() -> None:
    fast, small = planned("speed"), planned("size")
    assert {forms(fast)[name] for name in ("first", "second")} == {Precision.FLOAT}
    assert {forms(small)[name] for name in ("first", "second")} == {Precision.WEIGHT_ONLY}
    assert forms(small)["head"] == forms(fast)["head"]
    why = fast.precisions["first"].reason
    stored = "int8 weights within +-127 in the file, computed in float32"
    assert small.precisions["first"].reason.words == f"{stored}: {why}"


def test_speed_says_what_size_would_save() -> None:
    note = next(note for note in planned("speed").notes if "objective 'size'" in note)
    assert note.startswith("2 node(s) with 13.8 kB of weights stay float")
    assert "10.3 kB less, at the same speed" in note
    assert not any("objective 'size'" in note for note in planned("size").notes)


def test_what_the_user_left_in_float_stays_so() -> None:
    mapping = default_qconfig_mapping().with_overrides(["node:first=float"])
    made = planned("size", mapping)
    assert forms(made)["first"] is Precision.FLOAT
    assert forms(made)["second"] is Precision.WEIGHT_ONLY


def test_a_weight_that_another_float_node_reads_stays_float() -> None:
    source = volumes()
    source.graph.input.append(helper.make_tensor_value_info("k", onnx.TensorProto.FLOAT, [1]))
    source.graph.node.append(helper.make_node("Mul", ["k", "w1"], ["z"], "penalty"))
    source.graph.output.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    prepared = prepare(source, None, "x86-vnni")
    statistics = calibrate(prepared, [{"x": X, "k": weights(4, 1)}])
    made = plan(prepared, statistics, Objective.SIZE)
    assert forms(made)["first"] is Precision.FLOAT
    assert forms(made)["second"] is Precision.WEIGHT_ONLY


def test_stored_weights_make_the_file_smaller_and_run_in_float() -> None:
    def run(objective: str) -> tuple[int, dict[str, int]]:
        made = onnxq.quantize(volumes(), BATCHES, target="x86-vnni", objective=objective)
        return len(made.to_bytes()), dict(execution(made).float_nodes)

    fast, small = run("speed"), run("size")
    assert small[0] < 0.6 * fast[0]
    assert small[1] == fast[1]


@pytest.mark.parametrize("objective", ["speed", "size"])
def test_the_forms_are_named_one_by_one_and_give_the_same_bytes(objective: str) -> None:
    prepared = prepare(volumes(), None, "x86-vnni")
    statistics = calibrate(prepared, BATCHES)
    first = plan(prepared, statistics, Objective(objective))
    named = prepare(volumes(), QConfigMapping.from_yaml(first.qconfig.to_yaml()), "x86-vnni")
    again = plan(named, calibrate(named, BATCHES))
    assert rewrite(named, again).to_bytes() == rewrite(prepared, first).to_bytes()
    assert not any("objective 'size'" in note for note in again.notes)
