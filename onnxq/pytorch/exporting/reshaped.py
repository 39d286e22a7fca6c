"""Programs whose views are of copies: attention in ONNX's layout is not torch's in memory.

torch.export records `view` where a tensor is contiguous in torch; taken apart into products and a
softmax, attention gives another order in memory, on which `view` fails. ONNX knows no such order:
the copies are no nodes of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.pytorch.arguments.axes import Axes
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

FAILED_VIEW = "Cannot view a tensor"
"""Words of torch's message."""


def reshaped_program(
    module: torch.nn.Module, bound: BoundInputs, axes: Axes
) -> torch.export.ExportedProgram:
    """torch.export's program of the module, with copies where it asks for memory in order.

    Args:
        module: takes the tensors of `bound`.
        bound: example inputs.
        axes: which are dynamic.
    """
    sizes: Mapping[str, object] = {label: torch.export.Dim(label) for label in axes.labels}
    shapes = {
        name: {axis: sizes[label] for axis, label in axes.of.get(name, {}).items()} or None
        for name in bound.tensors
    }
    program = torch.export.export(
        module, bound.args, bound.kwargs or None, dynamic_shapes=shapes, strict=False
    )
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.contiguous.default:
            node.target = torch.ops.aten.clone.default
            node.kwargs = {"memory_format": torch.contiguous_format}
    program.graph_module.recompile()
    return program


def name_sizes(model: ir.Model, axes: Axes) -> None:
    """Gives dynamic sizes their names, where the exporter has left torch's symbols.

    Args:
        model: of such a program; changed in place.
        axes: names by input.
    """
    names = {
        str(value.shape[axis]): label
        for value in model.graph.inputs
        if value.shape is not None
        for axis, label in axes.of.get(str(value.name), {}).items()
    }
    for value in (*model.graph.inputs, *model.graph.outputs, *_results(model)):
        for axis, size in enumerate(value.shape or ()):
            if value.shape is not None and str(size) in names:
                value.shape[axis] = names[str(size)]


def _results(model: ir.Model) -> list[ir.Value]:
    return [value for node in model.graph for value in node.outputs]
