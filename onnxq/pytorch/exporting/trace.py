"""torch's exporter: the ONNX model of a module, or why there is none and what to do."""

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from onnxq.errors import UnsupportedError
from onnxq.pytorch.arguments.axes import Axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.exporting.optimized import name_inputs_and_outputs, optimize
from onnxq.pytorch.exporting.quiet import quiet_exporter, users_line
from onnxq.pytorch.exporting.translation import translation_table
from onnxq.pytorch.exporting.whole_layers import RECURRENT_TABLE, WholeLayers
from onnxq.pytorch.train.never_ran import NOT_REACHED

# --- The context in which a module is traced.
#
# Bounds of a clamp become numbers of one type, as torch itself promotes them: its exporter makes a
# tensor of an int beside a float, for which `aten.clamp` has no overload.

_CLAMPS: frozenset[object] = frozenset(
    {torch.clamp, torch.clamp_, torch.clip, torch.clip_}
    | {Tensor.clamp, Tensor.clamp_, Tensor.clip, Tensor.clip_}
)
_BOUNDS = ("min", "max")


class PromotedBounds(TorchFunctionMode):
    """A context in which clamp(x, 0, 1.0) is clamp(x, 0.0, 1.0)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the function, a clamp with bounds of one type."""
        named = kwargs or {}
        if func not in _CLAMPS:
            return func(*args, **named)
        given = dict(zip(_BOUNDS, args[1:], strict=False)) | named
        bounds = {name: given[name] for name in _BOUNDS if name in given}
        if {type(bound) for bound in bounds.values()} != {int, float}:
            return func(*args, **named)
        return func(*args[:1], **named | {name: float(bound) for name, bound in bounds.items()})


def _as_hinted(mask: object, is_causal: bool | None = None, size: object = None) -> bool:  # noqa: ARG001  # torch's
    return is_causal is True


@contextlib.contextmanager
def _batched_experts(traced: object) -> Iterator[None]:
    """A context in which transformers' experts multiply by gathered weights, as ONNX can.

    The grouped MatMul of their default has no ONNX operator, and a loop over the experts that were
    chosen depends on values.
    """
    with contextlib.ExitStack() as stack:
        for part in traced.modules() if isinstance(traced, nn.Module) else ():
            ask: Any = getattr(part, "get_experts_implementation", None)
            choose: Any = getattr(part, "set_experts_implementation", None)
            if ask and choose:
                stack.callback(choose, ask())
                choose("batched_mm")
        yield


@contextlib.contextmanager
def tracing(traced: object) -> Iterator[None]:
    """A context in which torch.export sees the operators that layers compute in training.

    In eval mode torch's transformers run as one fused function, or on nested tensors, and look at a
    mask's values to see whether it is causal: none of this can be traced. A mask is applied as it
    is given; `is_causal` is the hint that torch says it is.
    """
    is_fast, detect = torch.backends.mha.get_fastpath_enabled(), transformer._detect_is_causal_mask  # noqa: SLF001  # torch has no switch
    with quiet_exporter(traced), WholeLayers(), PromotedBounds(), _batched_experts(traced):
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            transformer._detect_is_causal_mask = _as_hinted  # noqa: SLF001  # likewise
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(is_fast)
            transformer._detect_is_causal_mask = detect  # noqa: SLF001  # as it was


# --- Programs with a copy ahead of each view of a transposed tensor, on which `view` may fail.
#
# torch.export records `view` where a tensor is contiguous in torch. Decomposed into MatMuls and a
# softmax, attention gives strides on which that `view` fails. ONNX has no strides, so that
# the copies are no nodes of the model.

FAILED_VIEW = "Cannot view a tensor"
"""Words of torch's message."""
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
_TRANSPOSES = (torch.ops.aten.transpose.int, torch.ops.aten.permute.default)


def reshaped_program(
    module: torch.nn.Module, bound: BoundInputs, axes: Axes
) -> torch.export.ExportedProgram:
    """torch.export's program of the module, with copies where tensors may not be contiguous."""
    sizes: Mapping[str, object] = {label: torch.export.Dim(label) for label in axes.labels}
    shapes = {
        name: {axis: sizes[label] for axis, label in axes.of.get(name, {}).items()} or None
        for name in bound.tensors
    }
    program = torch.export.export(
        module, bound.args, bound.kwargs or None, dynamic_shapes=shapes, strict=False
    )
    ordered = {"memory_format": torch.contiguous_format}
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.contiguous.default:
            node.target, node.kwargs = torch.ops.aten.clone.default, ordered
        if node.target in _VIEWS and node.args[0].target in _TRANSPOSES:
            with program.graph.inserting_before(node):
                copy = program.graph.call_function(
                    torch.ops.aten.clone.default, (node.args[0],), ordered
                )
            copy.meta.update(node.args[0].meta)
            node.args = (copy, *node.args[1:])
    program.graph_module.recompile()
    return program


def name_sizes(model: ir.Model, axes: Axes) -> None:
    """Gives dynamic sizes their names, where the exporter has left torch's symbols."""
    names = {
        str(value.shape[axis]): label
        for value in model.graph.inputs
        if value.shape is not None
        for axis, label in axes.of.get(str(value.name), {}).items()
    }
    results = [value for node in model.graph for value in node.outputs]
    for value in (*model.graph.inputs, *model.graph.outputs, *results):
        for axis, size in enumerate(value.shape or ()):
            if value.shape is not None and str(size) in names:
                value.shape[axis] = names[str(size)]


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
    """The ONNX model that torch's exporter makes of a module, as it makes it."""
    try:
        return _written(module, bound, axes, opset, output_names)
    except torch.onnx.OnnxExporterError as error:
        if FAILED_VIEW not in _reasons(error)[-1]:
            raise UnsupportedError(_explained(module, error)) from error
    with tracing(module):
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
    # positional where possible: an input name (past.0.key) need not be that of a parameter
    shapes = by_name if bound.kwargs else tuple(by_name.values())
    with tracing(source):
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
    # after optimize, which renames inputs that have the name of another value
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
