"""torch's exporter: the ONNX model of a module, or why there is none and what to do."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import torch
from torch import nn

from onnxq.errors import UnsupportedError
from onnxq.pytorch.exporting.even_bounds import EvenBounds
from onnxq.pytorch.exporting.optimized import name_inputs_and_outputs, optimize
from onnxq.pytorch.exporting.quiet import quiet_exporter
from onnxq.pytorch.exporting.translation import translation_table
from onnxq.pytorch.exporting.users_line import users_line
from onnxq.pytorch.exporting.whole_layers import RECURRENT_TABLE, WholeLayers
from onnxq.pytorch.train.never_ran import NOT_REACHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.pytorch.arguments.axes import Axes
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs


# --- Programs whose views are of copies: attention in ONNX's layout is not torch's in memory.
#
# torch.export records `view` where a tensor is contiguous in torch; taken apart into products and a
# softmax, attention gives another order in memory, on which `view` fails. ONNX knows no such order:
# the copies are no nodes of the model.

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


# Part of the exporter's message -> what the user can do.
_ADVICE = (
    (
        "data-dependent",
        "forward branches on the values of a tensor: use torch.where or torch.cond.",
    ),
    (
        "inferred a static shape",
        "name the axes of other inputs that have this size, too; where forward itself fixes it, "
        "make it general, or leave the axis out (dynamic_axes={} fixes all).",
    ),
    (
        "__obj_flatten__",
        "the module is quantized by torch already: export the float one and let onnxq quantize it.",
    ),
    (NOT_REACHED, "run such data through the prepared module, then convert and export it again."),
    ("observer_enabled", "the module holds torch's FakeQuantize: export the float module instead."),
    (
        "No ONNX function found",
        "this torch operator has no ONNX form: replace it by operators that have.",
    ),
)


def trace(
    module: nn.Module,
    bound: BoundInputs,
    axes: Axes,
    opset: int,
    output_names: Sequence[str] | None,
) -> ir.Model:
    """The ONNX model that torch's exporter makes of a module, as it makes it.

    Args:
        module: in eval mode, without shortcuts; it takes and gives tensors.
        bound: its inputs, dynamic axes 2 or longer.
        axes: those that are dynamic.
        opset: what is asked for; the exporter may write another.
        output_names: in order; None: the exporter's.
    """
    try:
        return _written(module, bound, axes, opset, output_names)
    except torch.onnx.OnnxExporterError as error:
        if FAILED_VIEW not in _reasons(error)[-1]:
            raise UnsupportedError(_explained(module, error)) from error
    with quiet_exporter(module), WholeLayers(), EvenBounds():
        reshaped = reshaped_program(module, bound, axes)
    try:
        model = _written(reshaped, bound, axes, opset, output_names)
    except torch.onnx.OnnxExporterError as error:
        raise UnsupportedError(_explained(module, error)) from error
    name_sizes(model, axes)
    return model


def _written(
    source: nn.Module | torch.export.ExportedProgram,
    bound: BoundInputs,
    axes: Axes,
    opset: int,
    output_names: Sequence[str] | None,
) -> ir.Model:
    # None, not {}, for an input without dynamic axes: torch wants an entry per input
    by_name = {name: axes.of.get(name) or None for name in bound.tensors}
    # by place where it can be: a name that was asked for need not be a parameter's (past.0.key)
    shapes = by_name if bound.kwargs else tuple(by_name.values())
    with quiet_exporter(source), WholeLayers(), EvenBounds():
        program = torch.onnx.export(
            source,
            bound.args,
            kwargs=bound.kwargs or None,
            dynamo=True,
            verbose=False,
            optimize=False,
            opset_version=opset,
            dynamic_shapes=shapes if isinstance(source, nn.Module) else None,
            custom_translation_table=translation_table(opset) | RECURRENT_TABLE,
        )
        assert program is not None, "torch.onnx.export(dynamo=True) returns a program"
        optimize(program)
    # afterwards, as torch does: its optimizer renames inputs that are called like another value
    name_inputs_and_outputs(program.model, list(bound.tensors), output_names)
    return program.model


def _explained(module: nn.Module, error: BaseException) -> str:
    """The failure in one line, the exporter's own reason, and the remedy where it is known."""
    reasons = _reasons(error)
    known = [advice for mark, advice in _ADVICE if any(mark in reason for reason in reasons)]
    innermost = textwrap.shorten(reasons[-1], 400, placeholder=" ...") + users_line(error)
    remedy = known[0] if known else "change the line of forward that the message above names."
    return f"{type(module).__name__} cannot be exported to ONNX: {innermost}\nWhat to do: {remedy}"


def _reasons(error: BaseException) -> list[str]:
    """Messages of an error and its causes, outermost first."""
    reasons = []
    cause: BaseException | None = error
    while cause is not None:
        reasons.append(str(cause))
        cause = cause.__cause__
    return reasons
