from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq import catalog
from onnxq.checking.differences import Unit
from onnxq.checking.node_by_node import NodeByNode
from onnxq.checking.visible import Inner, Visible
from onnxq.errors import UnsupportedError
from onnxq.ort import runtime
from onnxq.ort.runtime import Optimization
from tests.examples import as_ir, model, quantized_matmul, weights
from tests.operators import builder
from tests.this_machine import SATURATION_MODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx.reference.op_run import OpRun

    from onnxq.core.arrays import Array


def run(target: ir.Model, feeds: Mapping[str, Array]) -> tuple[NodeByNode, dict[str, Inner]]:
    nodes = NodeByNode(target, SATURATION_MODE)
    visible = Visible(nodes.exposed)
    with visible.session:
        return nodes, visible.run(feeds)[1]


def flipped(x: Inner) -> Array:
    return np.asarray(np.asarray(x, np.uint8) ^ np.uint8(1))


@pytest.fixture
def target() -> ir.Model:
    return as_ir(quantized_matmul(np.array(3, np.uint8)))


FEEDS: dict[str, Array] = {"x": weights(0, 3, 8)}


def test_the_optimized_graph_is_compared_not_the_file(target: ir.Model) -> None:
    nodes, inner = run(target, FEEDS)
    nodes.compare(FEEDS, inner)
    assert [n.op_type for n in nodes.findings()] == [
        "QuantizeLinear",
        "QLinearMatMul",
        "DequantizeLinear",
    ]
    assert [n.differing for n in nodes.findings()] == [0, 0, 0]


def test_arrays_are_let_go_when_no_later_node_reads_them(target: ir.Model) -> None:
    nodes, inner = run(target, FEEDS)
    assert inner
    nodes.compare(FEEDS, inner)
    assert not inner


def test_results_are_the_integers_by_node(target: ir.Model) -> None:
    nodes, inner = run(target, FEEDS)
    results = nodes.results(inner)
    assert [node for node, _ in results] == ["x_q", "matmul"]
    assert {array.dtype.name for array in results.values()} == {"uint8"}


def test_a_changed_tensor_is_seen_at_the_node_that_made_it_and_the_one_behind(
    target: ir.Model,
) -> None:
    nodes, inner = run(target, FEEDS)
    name = next(name for node, name in nodes.results(inner) if node == "matmul")
    inner[name] = flipped(inner[name])
    nodes.compare(FEEDS, inner)
    assert [(n.op_type, n.differing > 0) for n in nodes.findings()] == [
        ("QuantizeLinear", False),
        ("QLinearMatMul", True),
        ("DequantizeLinear", True),
    ]


class Short:
    """A kernel that gives no output."""

    def run(self, *_: object) -> tuple[Array, ...]:
        return ()


class Refusing:
    """A kernel that refuses its inputs."""

    def run(self, *_: object) -> tuple[Array, ...]:
        raise UnsupportedError("refused")


def replace_kernel(nodes: NodeByNode, kernel: object) -> None:
    (entry,) = (e for e in nodes._nodes if e.node.op_type == "QLinearMatMul")
    entry.runner = cast("OpRun", kernel)


def test_an_output_that_a_kernel_does_not_give_is_a_problem(target: ir.Model) -> None:
    nodes, inner = run(target, FEEDS)
    replace_kernel(nodes, Short())
    nodes.compare(FEEDS, inner)
    (found,) = (n for n in nodes.findings() if n.op_type == "QLinearMatMul")
    assert "NoneType" in found.problem


def test_what_differed_before_a_kernel_refused_is_still_told(target: ir.Model) -> None:
    nodes, inner = run(target, FEEDS)
    name = next(name for node, name in nodes.results(inner) if node == "matmul")
    nodes.compare(FEEDS, {**inner, name: flipped(inner[name])})
    replace_kernel(nodes, Refusing())
    nodes.compare(FEEDS, inner)
    (found,) = (n for n in nodes.findings() if n.op_type == "QLinearMatMul")
    assert found.differing == found.elements > 0
    assert [n.reason.words for n in nodes.unchecked()] == ["refused"]


def test_outputs_that_the_visible_graph_changes_are_noted(target: ir.Model) -> None:
    nodes, _ = run(target, FEEDS)
    y: dict[str, Array] = {"y": weights(0, 3, 8)}
    nodes.note_instrumented(y, y)
    assert not nodes.instrumented
    nodes.note_instrumented(y, {"y": weights(1, 3, 8)})
    assert list(nodes.instrumented) == ["y"]


def test_before_a_batch_integer_nodes_are_unchecked(target: ir.Model) -> None:
    nodes = NodeByNode(target, SATURATION_MODE)
    assert [n.reason.words for n in nodes.unchecked()] == ["no sample reached it"] * 3
    assert (nodes.findings(), nodes.floats()) == ((), ())


def test_the_bias_of_int32_is_dequantized_by_a_kernel() -> None:
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], "dq")
    proto = model([node], {"s": np.array(0.1, np.float32)}, {"x": ["N"]}, {"y": 1}, dtype=6)
    feeds: dict[str, Array] = {"x": np.array([-(2**31), 7, 2**30 + 1], np.int32)}
    nodes, inner = run(as_ir(proto), feeds)
    nodes.compare(feeds, inner)
    (found,) = nodes.findings()
    assert (found.op_type, found.kernel, found.differing) == ("DequantizeLinear", "onnxq", 0)


def test_plain_integers_are_compared_with_onnx_s_own_implementation() -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"], "add")
    feeds: dict[str, Array] = {"x": np.arange(256, dtype=np.uint8)}
    nodes, inner = run(as_ir(model([node], {}, {"x": ["N"]}, {"y": 2}, opset=21, dtype=2)), feeds)
    nodes.compare(feeds, inner)
    (found,) = nodes.findings()
    assert (found.kernel, found.differing) == ("onnx.reference", 0)


def test_the_visible_graph_is_not_optimized_again(target: ir.Model) -> None:
    nodes = NodeByNode(target, SATURATION_MODE)
    with runtime.open_session(nodes.exposed.model, optimization=Optimization.NONE) as session:
        assert {"x_quantized", "y"} <= set(session.outputs)


def test_differences_within_the_bound_of_a_kernel_do_not_count() -> None:
    operator = catalog.find_integer("MatMulNBits", "com.microsoft")
    assert operator is not None
    case = next(iter(operator.cases()))
    names = zip(builder.names(case), case.inputs, strict=True)
    feeds: dict[str, Array] = {
        name: x for i, (name, x) in enumerate(names) if x is not None and i not in case.constants
    }
    target = ir.from_proto(builder.integer_model(operator, "com.microsoft", case))
    nodes, inner = run(target, feeds)
    nodes.compare(feeds, inner)
    (found,) = nodes.findings()
    assert (found.kernel, found.unit, found.differing) == ("onnxq", Unit.ULP_BEYOND_BOUND, 0)
