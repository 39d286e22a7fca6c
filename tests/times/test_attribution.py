from __future__ import annotations

from onnxq.operator import Precision
from onnxq.ort.runtime import open_with_graph, optimized_graph
from onnxq.qconfig import QConfigMapping, onnxq_default_dynamic_qconfig
from onnxq.times.attribution import TimeOwner, TimePart, owners, unnamed, with_unnamed
from onnxq.tuning.evaluation.evaluator import precisions_of
from tests.examples import ALL_INTEGERS, network
from tests.small_networks import encoder_block
from tests.tuning.parts import evaluator_of, rows


def test_float_nodes_are_found_under_the_names_that_onnx_runtime_gives_them() -> None:
    source = evaluator_of().subject.canonical.model
    found = owners(source, optimized_graph(source), {})
    kernels = {owner.name for owner in found.values() if owner.part is TimePart.KERNEL}
    assert {"conv1", "conv2", "softmax", "pool", "gemm"} <= kernels
    assert not [owner for owner in found.values() if owner.part is TimePart.OTHER]
    around = {owner.name for owner in found.values() if owner.part is TimePart.AROUND}
    assert around <= {"conv1", "conv2"}  # which want their channels in blocks


def test_conversions_belong_to_the_node_that_needs_them() -> None:
    evaluator = evaluator_of()
    made = evaluator.quantized(ALL_INTEGERS.set_node("conv2", None))
    session, optimized = open_with_graph(made.model)
    session.close()
    source = evaluator.subject.prepared(ALL_INTEGERS).model
    found = owners(source, optimized, precisions_of(made.plan))
    by_name = {node.name: node.op_type for node in optimized.graph}
    quantize = {o.name for n, o in found.items() if by_name[n] == "QuantizeLinear"}
    assert "conv1" in quantize  # of x
    assert "conv2" not in quantize
    assert all(
        owner.part is not TimePart.OTHER
        for name, owner in found.items()
        if by_name[name] != "Transpose"
    )


def test_a_node_that_computes_in_float_between_integers_has_its_conversions() -> None:
    evaluator = evaluator_of(encoder_block(), rows(encoder_block()))
    made = evaluator.quantized(ALL_INTEGERS)
    precisions = precisions_of(made.plan)
    found = owners(
        evaluator.subject.prepared(ALL_INTEGERS).model, optimized_graph(made.model), precisions
    )
    inner = [name for name, precision in precisions.items() if precision is Precision.INT8]
    assert {o.name for o in found.values() if o.part is TimePart.KERNEL} >= {"weight_up", "scores"}
    assert inner


def test_matmuls_that_quantize_when_they_run_are_their_node_s() -> None:
    evaluator = evaluator_of()
    made = evaluator.quantized(QConfigMapping(onnxq_default_dynamic_qconfig))
    source = evaluator.subject.prepared(ALL_INTEGERS).model
    found = owners(source, optimized_graph(made.model), precisions_of(made.plan))
    assert TimeOwner("gemm", TimePart.KERNEL) in found.values()


def test_nodes_without_a_name_are_matched_by_operator_and_order() -> None:
    known = {
        "a": TimeOwner("a", TimePart.KERNEL),
        unnamed("Mul", 0): TimeOwner("b", TimePart.KERNEL),
    }
    assert with_unnamed({"a": 1.0, "Mul_68": 2.0}, known) == {"a": 1.0, unnamed("Mul", 0): 2.0}


def test_everything_that_runs_is_attributed_once() -> None:
    optimized = optimized_graph(evaluator_of().subject.canonical.model)
    found = owners(evaluator_of().subject.canonical.model, optimized, {})
    assert len(found) == sum(1 for _ in optimized.graph.all_nodes())
    assert network().graph.node[0].name == "conv1"
