"""Golden graphs of dynamic quantization, one of each lowering: what a reviewer sees in a diff."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.observers import NarrowRangeObserver, NoopObserver
from onnxq.operator import DynamicForm
from onnxq.qconfig import QConfigDynamic
from tests.dynamic_models import SIDE, normal, quantized
from tests.examples import model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.observers import ObserverSpec

GOLDEN = Path(__file__).parent.parent.parent / "golden"
INT8 = NarrowRangeObserver.with_args()
INT4 = NarrowRangeObserver.with_args(dtype="int4", quant_max=7)
HALF = NoopObserver.with_args(dtype="float16")
INTEGER, BLOCKS, STORED = DynamicForm.INTEGER, DynamicForm.BLOCKS, DynamicForm.STORED


def one(op_type: str, weights: Sequence[tuple[int, ...]], x: list[Any], **attributes: Any) -> Any:
    """The operator on x and constant weights of these shapes."""
    names = "wrb"[: len(weights)]
    constants = {n: normal(*s, seed=i) for i, (n, s) in enumerate(zip(names, weights, strict=True))}
    return model(
        [helper.make_node(op_type, ["x", *names], ["y"], "node", **attributes)], constants, {"x": x}
    )


def shared() -> onnx.ModelProto:
    """Two products of one x, as Q and K are, and the bias of one."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], "query"),
        helper.make_node("MatMul", ["x", "v"], ["k"], "key"),
        helper.make_node("Add", ["q", "b"], ["s"], "bias"),
        helper.make_node("Mul", ["s", "k"], ["y"], "mul"),
    ]
    constants = {"w": normal(SIDE, SIDE), "v": normal(SIDE, SIDE, seed=1), "b": normal(SIDE)}
    return model(nodes, constants, {"x": ["N", SIDE]})


def table() -> onnx.ModelProto:
    """The rows of a table that ids name."""
    node = helper.make_node("Gather", ["w", "ids"], ["y"], "node")
    graph = helper.make_graph(
        [node],
        "table",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(normal(40, SIDE), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def recurrent(op_type: str, gates: int) -> onnx.ModelProto:
    """Five steps of two samples."""
    shapes = [(1, gates * SIDE, 8), (1, gates * SIDE, SIDE), (1, 2 * gates * SIDE)]
    made: onnx.ModelProto = one(op_type, shapes, [5, 2, 8], hidden_size=SIDE)
    return made


MODELS: dict[str, tuple[onnx.ModelProto, ObserverSpec, DynamicForm | None]] = {
    "matmul_integer": (shared(), INT8, INTEGER),
    "gemm_integer": (one("Gemm", [(8, SIDE), (8,)], ["N", SIDE], transB=1), INT8, INTEGER),
    "matmul_blocks": (one("MatMul", [(SIDE, 8)], ["N", SIDE]), INT4, BLOCKS),
    "matmul_half": (one("MatMul", [(SIDE, 8)], ["N", SIDE]), HALF, None),
    "lstm_integer": (recurrent("LSTM", 4), INT8, INTEGER),
    "gru_integer": (recurrent("GRU", 3), INT8, INTEGER),
    "gru_stored": (recurrent("GRU", 3), INT8, STORED),
    "gather_stored": (table(), INT8, STORED),
    "gather_blocks": (table(), INT4, BLOCKS),
    "conv_stored": (one("Conv", [(4, 3, 3, 3), (4,)], ["N", 3, 6, 6]), INT8, STORED),
}


def text(graph: ir.Graph, indent: str = "") -> str:
    """Initializers with type and shape, then nodes, one a line, bodies indented."""
    lines = [
        f"{indent}{name}: {value.dtype}{list(value.shape or [])}"
        for name, value in graph.initializers.items()
    ]
    for node in graph:
        inputs = ", ".join(v.name or "?" if v is not None else "-" for v in node.inputs)
        outputs = ", ".join(v.name or "-" for v in node.outputs)
        lines.append(f"{indent}{outputs} = {node.op_type}({inputs})")
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                body = attribute.as_graph()
                names = (
                    ", ".join(str(v.name) for v in part) for part in (body.inputs, body.outputs)
                )
                lines.append("{}  {}: ({}) -> ({})".format(indent, attribute.name, *names))
                lines.append(text(body, indent + "    ").rstrip("\n"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_graph_is_as_reviewed(name: str) -> None:
    source, weight, form = MODELS[name]
    made = quantized(source, QConfigDynamic(weight, form))
    golden = GOLDEN / f"dynamic_{name}.txt"
    found = text(made.graph)
    assert found == golden.read_text(), f"changed; review it, then write it to {golden}"


def test_every_form_has_a_golden_graph() -> None:
    forms = {DynamicForm.HALF if weight is HALF else form for _, weight, form in MODELS.values()}
    assert forms == set(DynamicForm)
