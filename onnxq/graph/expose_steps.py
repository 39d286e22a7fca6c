"""Makes tensors in bodies of Scan outputs of the model, stacked over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.edit import FreeNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = (ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.UINT8, ir.DataType.INT8)
"""Types that go out as arrays."""


def expose_steps(model: ir.Model, wanted: Callable[[ir.Node], bool]) -> dict[str, str]:
    """Adds outputs to the model, in place; tensor -> name of the output that stacks it.

    A tensor x in the body of a Scan becomes one more scan output of it, (steps, *x.shape) in the
    order in which the steps run. Bodies inside of other bodies are left alone, as are those whose
    inputs have no shapes: ONNX Runtime wants to know the shapes of what a Scan collects.

    Args:
        model: names are unique over the whole model.
        wanted: nodes of bodies whose inputs and outputs are exposed.
    """
    names, outputs = FreeNames(model), {}
    for scan in list(model.graph):
        if scan.op_type != "Scan" or scan.domain:
            continue
        body = scan.attributes["body"].as_graph()
        if any(value.shape is None for value in body.inputs):
            continue
        inside = list(dict.fromkeys(_around(body, wanted)))
        for value in inside:
            outputs[str(value.name)] = _stack(model.graph, scan, body, value, names)
    return outputs


def _around(body: ir.Graph, wanted: Callable[[ir.Node], bool]) -> Iterator[ir.Value]:
    """Inputs and outputs of the wanted nodes that belong to this body."""
    for node in body:
        if not wanted(node):
            continue
        for value in (*node.inputs, *node.outputs):
            if value is None or not value.name or value.dtype not in KINDS:
                continue
            producer = value.producer()
            if value in body.inputs or (producer is not None and producer.graph is body):
                yield value


def _stack(
    graph: ir.Graph, scan: ir.Node, body: ir.Graph, value: ir.Value, names: FreeNames
) -> str:
    copy = ir.node("Identity", [value], name=names.node(f"{value.name}_step"))
    shown = copy.outputs[0]
    shown.name, shown.type, shown.shape = names.value(f"{value.name}_step"), value.type, value.shape
    body.append(copy)
    body.outputs.append(shown)
    scan.resize_outputs(len(scan.outputs) + 1)
    for name in ("scan_output_directions", "scan_output_axes"):
        if name in scan.attributes:
            given = scan.attributes[name].as_ints()
            scan.attributes[name] = ir.AttrInt64s(name, [*given, 0])
    stacked = scan.outputs[-1]
    stacked.name, stacked.type = names.value(f"{value.name}_steps"), value.type
    graph.outputs.append(stacked)
    return str(stacked.name)
