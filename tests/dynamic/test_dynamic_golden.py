"""Golden graphs of dynamic quantization, one of each lowering: what a reviewer sees in a diff."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from onnxq.operator import Precision
from onnxq.qconfig import QConfigDynamic
from onnxq.qconfig._values import DYNAMIC_PRECISIONS
from tests.dynamic_models import quantized
from tests.golden_models import DYNAMIC, HALF

GOLDEN = Path(__file__).parent.parent / "golden"


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


@pytest.mark.parametrize("name", sorted(DYNAMIC))
def test_graph_is_as_reviewed(name: str) -> None:
    source, weight, form = DYNAMIC[name]
    made = quantized(source, QConfigDynamic(weight, None if form is None else Precision(form)))
    golden = GOLDEN / f"dynamic_{name}.txt"
    found = text(made.graph)
    assert found == golden.read_text(), f"changed; review it, then write it to {golden}"


def test_every_form_has_a_golden_graph() -> None:
    forms = {
        Precision.WEIGHT_ONLY_FLOAT16 if weight is HALF else Precision(form)
        for _, weight, form in DYNAMIC.values()
    }
    assert forms == set(DYNAMIC_PRECISIONS)
