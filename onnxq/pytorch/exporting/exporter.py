"""PyTorch module -> ONNX model: one file, dynamic batch, checked against the module.

Usage: onnxq.export(module, example_images, "model.onnx")

A quantized module (of `convert`) becomes a quantized model, a prepared one is converted first.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import textwrap
import warnings
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import fx, nn

from onnxq.checking.trial_run import try_alone
from onnxq.errors import QConfigError, UnsupportedError, VerificationError
from onnxq.graph import io
from onnxq.graph.annotations import Annotations
from onnxq.ort import runtime
from onnxq.pytorch.arguments.axes import BATCH, Axes, DynamicAxes, resolved
from onnxq.pytorch.arguments.batch_axes import batch_axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs, bind, positional
from onnxq.pytorch.arguments.cache import without_cache
from onnxq.pytorch.arguments.flat import flattened, is_flat
from onnxq.pytorch.arguments.flat import output_names as names_of
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, compute
from onnxq.pytorch.exporting.agreement import layer_by_layer
from onnxq.pytorch.exporting.check import (
    check_against,
    check_dtypes,
    check_projections,
    relative_tolerance,
)
from onnxq.pytorch.exporting.check_quantized import check_in_steps
from onnxq.pytorch.exporting.not_a_number import run_in_numbers
from onnxq.pytorch.exporting.quiet import quiet_exporter
from onnxq.pytorch.exporting.reshaped import FAILED_VIEW, name_sizes, reshaped_program
from onnxq.pytorch.exporting.result import check_request, own_weights, tidy
from onnxq.pytorch.exporting.script import bind_script, check_script_request, export_script
from onnxq.pytorch.exporting.translation import translation_table
from onnxq.pytorch.exporting.users_line import users_line
from onnxq.pytorch.exporting.whole_layers import RECURRENT_TABLE, WholeLayers, merge_directions
from onnxq.pytorch.modules.door import Model, in_float32, is_scripted, opened, recorded
from onnxq.pytorch.modules.transformers import twin_without_shortcuts, zeroes_padding
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.train.agreeing_sums import warn_of_sums
from onnxq.pytorch.train.never_ran import NOT_REACHED
from onnxq.pytorch.train.successors import check_prepared, convert_in_place
from onnxq.qdq import tidy as quantized_graph
from onnxq.qdq.qoperator import check_format
from onnxq.quantized.quantized_model import QuantizedModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.pytorch.exporting.check import Run

MIN_OPSET = 18  # the exporter's translations are written for it; asked for less it returns 18
MAX_OPSET = 22  # from 23 on attention becomes one Attention node, which hides its MatMuls
DEFAULT_OPSET = (
    21  # GELU and GroupNorm stay one node; Q and DQ take 4- and 16-bit types without a conversion
)

__all__ = ["BATCH", "DEFAULT_OPSET", "MAX_OPSET", "MIN_OPSET", "DynamicAxes", "export"]

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


def export(
    module: Model,
    inputs: Inputs,
    path: str | Path | None = None,
    *,
    opset: int = DEFAULT_OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: DynamicAxes | None = None,
    tolerance: float | None = None,
    format: str = "qdq",
) -> ir.Model:
    """The module as an ONNX model, computing what it computes in eval mode.

    Modules of onnxq.pytorch.nn.quantized become QuantizeLinear and DequantizeLinear, with integer
    weights and biases; a module of prepare or prepare_qat is converted first, as a copy.

    The model is run on ONNX Runtime with the example inputs, with their first row alone and with
    one row more, and compared with the module before anything is written (see
    onnxq.pytorch.exporting.check, and check_quantized for quantized modules).
    The module's own modes (train or eval, each submodule) are as before afterwards.

    Args:
        module: anything that torch.export can trace; an ExportedProgram, or the path of a .pt2
            file; a scripted or traced module (in opset 20, by torch's older exporter, with tensors
            as inputs). One in half precision is exported in float32, with a warning.
        inputs: example inputs of forward: a tensor, a sequence of its arguments, or a mapping by
            parameter name. Tensors may be nested in them, in tuples, lists, dicts, named tuples and
            dataclasses; each becomes an input of the model, called as the parameter, or as the way
            to it: hidden_0, hidden_1. None, numbers and strings are constants of the model.
            use_cache is False where forward has it and nothing is said.
        path: where to write it, as one file (weights go to `<name>.data` beside it above 2 GB);
            None writes nothing.
        opset: 18 to 22.
        input_names: of the tensors, in order; None: as above.
        output_names: in order; None: keys and fields where forward returns a mapping, named tuple
            or dataclass, output_0, output_1_0, ... where it returns a sequence, and the exporter's
            name of a single tensor.
        dynamic_axes: input name -> {axis: name of its size}; or by parameter, for all tensors in
            it, or nested like it, as torch.export's dynamic_shapes (see pytorch.arguments.axes).
            None takes those of a program, and else finds the batch: axis 0 of every input, or axes
            of equal length along which forward computes rows one by one (see
            pytorch.arguments.batch_axes). {} fixes all shapes to
            those of the example inputs.
        tolerance: largest accepted difference as a share of the largest absolute output value, or
            in steps of a quantized output; None derives it from the module's size.
        format: of a quantized model, "qdq" or "qoperator", as `onnxq.rewrite` has them.
    Returns:
        The model, of a quantized module an onnxq.QuantizedModel; its weights are copies, so that
        it stays as it is when training goes on.
    Raises:
        QConfigError: inputs, names or axes that forward does not have.
        ModelError: parameters in float64; a path that holds no program; forward fails on the
            example inputs, or in every other batch size; NaN comes to a layer that has codes of it.
        UnsupportedError: an opset out of range, a module that cannot be exported, a request
            that the exporter did not fulfil.
        VerificationError: the exported model computes something else than the module.
        OutputError: path cannot be written.
    """
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise UnsupportedError(
            f"opset {opset}: export writes {MIN_OPSET} to {MAX_OPSET}. Leave it out for "
            f"{DEFAULT_OPSET}."
        )
    check_format(format)
    if path is not None:
        io.check_writable(path)  # before the work, not after it
    module = opened(module)
    if is_scripted(module):
        check_script_request(opset == DEFAULT_OPSET, input_names, output_names, dynamic_axes)
        model = export_script(module.eval(), bind_script(module, inputs))
        if path is not None:
            io.save(model, path, Annotations.KEPT)
        return model
    inputs = in_float32(inputs)
    if any(isinstance(part, FakeQuantize) for part in module.modules()):
        check_prepared(module)
        module = convert_in_place(copy.deepcopy(module))
    check_dtypes(module)
    check_projections(module)
    given = without_cache(module, bind(module, inputs, input_names))
    asked = recorded(module, given) if dynamic_axes is None else resolved(dynamic_axes, given)
    with eval_mode(module):
        outputs = run_in_numbers(module, given)
        axes = asked or batch_axes(module, given)
        bound = traceable(given, axes)
        names = output_names or names_of(outputs, bound.tensors)
        traced = twin_without_shortcuts(module)
        if is_flat(bound, outputs):
            model = _trace(traced, bound, axes, opset, names)
        else:
            flat = flattened(traced, bound)
            model = _trace(flat, positional(bound.tensors), axes, opset, names)
        check_request(model, list(bound.tensors), axes.of, opset, names)
        tidy(model)
        merge_directions(model)
        grids = quantized_graph.count_grids(model)
        is_quantized = bool(grids) or quantized_graph.holds_codes(model)
        if is_quantized:
            quantized_graph.tidy_quantized(model)
            warn_of_sums(module, model)
            model = QuantizedModel.of(quantized_graph.as_format(model, format))
        _check_values(module, model, bound, axes, Limits(grids, tolerance))
    if path is not None:
        io.save(model, path, Annotations.DROPPED if is_quantized else Annotations.KEPT)
    own_weights(model)
    if isinstance(model, QuantizedModel):
        model.attach(try_alone(model, bound.arrays))
    return model


def traceable(bound: BoundInputs, axes: Axes) -> BoundInputs:
    """Example inputs whose dynamic axes are 2 or longer: torch.export fixes 0 and 1."""
    for name, of_input in axes.of.items():
        for axis in of_input:
            if bound.tensors[name].shape[axis] < 2:
                if bound.tensors[name].shape[axis] == 0:
                    raise QConfigError(
                        f"example input '{name}' is empty along axis {axis}; give one row or more."
                    )
                bound = bound.resized({name: (axis,)}, 2)
    return axes.with_sums(bound)


@contextlib.contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode inside; each submodule's own mode outside."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def _trace(
    module: nn.Module,
    bound: BoundInputs,
    axes: Axes,
    opset: int,
    output_names: Sequence[str] | None,
) -> ir.Model:
    """The ONNX model that torch's exporter makes of a module that takes the tensors of `bound`."""
    try:
        return _written(module, bound, axes, opset, output_names)
    except torch.onnx.OnnxExporterError as error:
        if FAILED_VIEW not in _reasons(error)[-1]:
            raise UnsupportedError(_explained(module, error)) from error
    with quiet_exporter(), WholeLayers():
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
    with quiet_exporter(), WholeLayers():
        program = torch.onnx.export(
            source,
            bound.args,
            kwargs=bound.kwargs or None,
            dynamo=True,
            verbose=False,
            opset_version=opset,
            input_names=list(bound.tensors),
            output_names=output_names,
            dynamic_shapes=shapes if isinstance(source, nn.Module) else None,
            custom_translation_table=translation_table(opset) | RECURRENT_TABLE,
        )
    if program is None:
        raise AssertionError("torch.onnx.export(dynamo=True) returns a program")
    return program.model


class Limits(NamedTuple):
    """Limits that the check of an exported model goes by.

    Attributes:
        grids: number of tensors that are rounded; 0: a float model.
        tolerance: the caller's, or None.
    """

    grids: int
    tolerance: float | None


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


def _check_values(
    module: nn.Module, model: ir.Model, bound: BoundInputs, axes: Axes, limits: Limits
) -> None:
    """The example inputs, and other sizes of what is dynamic."""
    threads = 1 if quantized_graph.computes_in_threads(model) else None
    with runtime.open_session(model, threads=threads) as session:
        for trial in [bound, *_other_sizes(module, bound, axes)]:
            _check_trial(module, model, session.run, trial, limits)


def _other_sizes(module: nn.Module, bound: BoundInputs, axes: Axes) -> Iterator[BoundInputs]:
    """One row and one row more; of the other sizes, each by itself, one less.

    Batch norms without running statistics take no single row; then there is a warning.
    """
    for label in axes.labels:
        if axes.terms(label):
            continue
        length = axes.length(bound, label)
        sizes = (1, length + 1) if label == axes.batch else (length - 1,)
        for size in sizes:
            if axes.allows(label, size):
                trial = axes.resized(bound, label, size)
                if size != 1 or not _wants_rows(module, trial):
                    yield trial


def _wants_rows(module: nn.Module, one_row: BoundInputs) -> bool:
    """Whether torch's batch norm refuses one row, of which it cannot take the statistics."""
    try:
        compute(module, one_row)
    except ValueError as error:
        if "Expected more than 1 value per channel" not in str(error):
            return False
        warnings.warn(
            f"{type(module).__name__}: a batch norm without running statistics takes those of the "
            "batch, so that rows depend on each other, and the module refuses a single one. The "
            "exported model takes it, and gives that norm's bias.",
            UserWarning,
            stacklevel=5,
        )
        return True
    except FORWARD_RAISES:
        return False  # said where it is compared
    return False


_PADDING = (
    "In eval mode, torch's nn.TransformerEncoder sets results at padded positions to 0, as an ONNX "
    "model does not: build it with enable_nested_tensor=False."
)


def _check_trial(
    module: nn.Module, model: ir.Model, run: Run, trial: BoundInputs, limits: Limits
) -> None:
    tolerance = limits.tolerance
    if limits.grids:
        outputs = quantized_graph.output_scales(model)
        by_layer = None
        if isinstance(module, fx.GraphModule):
            by_layer = functools.partial(layer_by_layer, module, model)
        check_in_steps(module, run, outputs, trial, limits.grids, tolerance, by_layer)
        return
    limit = relative_tolerance(module) if tolerance is None else tolerance
    names = [value.name or "" for value in model.graph.outputs]
    try:
        check_against(module, run, names, trial, limit)
    except VerificationError as error:
        if not zeroes_padding(module):
            raise
        raise VerificationError(f"{error} {_PADDING}") from error
