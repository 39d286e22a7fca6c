from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

Numbers = npt.NDArray[Any]
"""An array of any type: tests compare and compute with them."""
Feeds = dict[str, Numbers]
Run = Callable[[ir.Model, Feeds], list[Numbers]]
Parse = Callable[..., ir.Model]
Text = Callable[[ir.Model], str]


@pytest.fixture
def parse() -> Parse:
    """Text of one graph -> model; `weights` become initializers of the main graph."""

    def make(
        graph: str, weights: Feeds | None = None, opset: int = 21, ir_version: int = 10
    ) -> ir.Model:
        header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "local" : 1]>\n'
        proto = onnx.parser.parse_model(header + graph)
        for name, array in (weights or {}).items():
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return ir.from_proto(proto)

    return make


@pytest.fixture
def run() -> Run:
    def run_on_onnxruntime(model: ir.Model, feeds: Feeds) -> list[Numbers]:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        data = ir.to_proto(model).SerializeToString()
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        outputs: list[Numbers] = session.run(None, feeds)
        return outputs

    return run_on_onnxruntime


@pytest.fixture
def text() -> Text:
    """The model as text, without values' types: what a reader of a golden file wants to see."""

    def to_text(model: ir.Model) -> str:
        lines: list[str] = []
        _describe(model.graph, "", lines)
        return "\n".join(lines)

    return to_text


def _describe(graph: ir.Graph, indent: str, lines: list[str]) -> None:
    inputs, outputs = (", ".join(v.name or "" for v in vs) for vs in (graph.inputs, graph.outputs))
    lines.append(f"{indent}({inputs}) -> ({outputs}); constants {sorted(graph.initializers)}")
    for node in graph:
        reads = ", ".join("" if v is None else v.name or "" for v in node.inputs)
        writes = ", ".join(v.name or "" for v in node.outputs)
        lines.append(f"{indent}{writes} = {node.op_type}({reads})")
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _describe(attribute.as_graph(), indent + "  ", lines)
