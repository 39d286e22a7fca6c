"""PyTorch module -> ONNX model: one file, dynamic batch, checked against the module.

Usage: onnxq.export(module, example_images, "model.onnx")

A quantized module (of `convert`) becomes a quantized model, a prepared one is converted first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from onnxq import runtime
from onnxq.errors import QConfigError, UnsupportedError, nearest
from onnxq.graph import io
from onnxq.pytorch import quantized_graph
from onnxq.pytorch.check import (
    check_against,
    check_dtypes,
    check_projections,
    first_run,
    relative_tolerance,
)
from onnxq.pytorch.check_quantized import check_in_steps
from onnxq.pytorch.fake_quantize import FakeQuantize
from onnxq.pytorch.inputs import BoundInputs, Inputs, bind
from onnxq.pytorch.quiet import quiet_exporter
from onnxq.pytorch.result import check_request, own_weights, tidy
from onnxq.pytorch.translation import translation_table
from onnxq.stages.rewrite import check_format

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.pytorch.check import Run

MIN_OPSET = 18  # the exporter's translations are written for it; asked for less it returns 18
MAX_OPSET = 22  # from 23 on attention becomes one Attention node, which hides its MatMuls
DEFAULT_OPSET = (
    21  # GELU and GroupNorm stay one node; Q and DQ take 4- and 16-bit types without a conversion
)
BATCH = "batch"

DynamicAxes = Mapping[str, Mapping[int, str]]

# Part of the exporter's message -> what the user can do.
_ADVICE = (
    (
        "data-dependent",
        "forward branches on the values of a tensor: use torch.where or torch.cond.",
    ),
    (
        "inferred a static shape",
        "forward fixes this size: make it general, or fix the axis (dynamic_axes={}).",
    ),
    (
        "__obj_flatten__",
        "the module is quantized by torch already: export the float one and let onnxq quantize it.",
    ),
    ("observer_enabled", "the module holds torch's FakeQuantize: export the float module instead."),
    (
        "No ONNX function found",
        "this torch operator has no ONNX form: replace it by operators that have.",
    ),
)


def export(
    module: nn.Module,
    inputs: Inputs,
    path: str | Path | None = None,
    *,
    opset: int = DEFAULT_OPSET,
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
    onnxq.pytorch.check, and check_quantized for quantized modules).
    The module's own modes (train or eval, each submodule) are as before afterwards.

    Args:
        module: anything that torch.export can trace.
        inputs: example inputs of forward: a tensor, a sequence, or a mapping by parameter name. The
            names of forward's parameters become the model's input names.
        path: where to write it, as one file (weights go to `<name>.data` beside it above 2 GB);
            None writes nothing.
        opset: 18 to 22.
        output_names: in order; None takes the keys where forward returns a mapping of tensors, else
            the exporter's names.
        dynamic_axes: input name -> {axis: name of its size}. None makes axis 0 of every input the
            batch; {} fixes all shapes to those of the example inputs.
        tolerance: largest accepted difference as a share of the largest absolute output value, or
            in steps of a quantized output; None derives it from the module's size.
        format: of a quantized model, "qdq" or "qoperator", as `onnxq.rewrite` has them.
    Returns:
        The model; its weights are copies, so that it stays as it is when training goes on.
    Raises:
        QConfigError: inputs or axes that forward does not have.
        ModelError: parameters in float64 or bfloat16; forward fails on the example inputs.
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
    if any(isinstance(part, FakeQuantize) for part in module.modules()):
        from onnxq.pytorch.convert import convert

        module = convert(module)
    check_dtypes(module)
    check_projections(module)
    given = bind(module, inputs)
    axes = _resolved_axes(dynamic_axes, given)
    bound = _traceable(given, axes)
    with _eval_mode(module):
        names = output_names or _mapping_keys(first_run(module, given), given)
        model = _trace(module, bound, axes, opset, names)
        check_request(model, list(bound.tensors), axes, opset, names)
        tidy(model)
        grids = quantized_graph.count_grids(model)
        if grids or quantized_graph.holds_codes(model):
            quantized_graph.tidy_quantized(model)
            model = quantized_graph.as_format(model, format)
        _check_values(module, model, bound, axes, Limits(grids, tolerance))
    if path is not None:
        io.save(model, path)
    own_weights(model)
    return model


def _resolved_axes(axes: DynamicAxes | None, bound: BoundInputs) -> dict[str, dict[int, str]]:
    """Input name -> {axis >= 0: name}; every input that has axes is in it where axes is None."""
    if axes is None:
        return {name: {0: BATCH} for name, x in bound.tensors.items() if x.ndim}
    for name, of_input in axes.items():
        if name not in bound.tensors:
            known = list(bound.tensors)
            raise QConfigError(
                f"dynamic_axes: no input '{name}'; inputs: {', '.join(known)}."
                f"{nearest(name, known)}"
            )
        rank = bound.tensors[name].ndim
        for axis in of_input:
            if not -rank <= axis < rank:
                raise QConfigError(f"dynamic_axes: input '{name}' has rank {rank}, no axis {axis}.")
    return {
        name: {axis % bound.tensors[name].ndim: size for axis, size in of_input.items()}
        for name, of_input in axes.items()
    }


def _traceable(bound: BoundInputs, axes: Mapping[str, Mapping[int, str]]) -> BoundInputs:
    """Example inputs whose dynamic axes are 2 or longer: torch.export fixes 0 and 1."""
    for name, of_input in axes.items():
        for axis in of_input:
            if bound.tensors[name].shape[axis] < 2:
                if bound.tensors[name].shape[axis] == 0:
                    raise QConfigError(
                        f"example input '{name}' is empty along axis {axis}; give one row or more."
                    )
                bound = bound.resized({name: axis}, 2)
    return bound


@contextlib.contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode inside; each submodule's own mode outside."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def _mapping_keys(outputs: object, bound: BoundInputs) -> list[str] | None:
    """The keys, where they can name the outputs; an output called like an input gets "_out"."""
    if not isinstance(outputs, Mapping):
        return None
    if not all(isinstance(value, torch.Tensor) for value in outputs.values()):
        return None  # nested or partly None: the exporter's names
    return [f"{key}_out" if key in bound.tensors else str(key) for key in outputs]


def _trace(
    module: nn.Module,
    bound: BoundInputs,
    axes: Mapping[str, Mapping[int, str]],
    opset: int,
    output_names: Sequence[str] | None,
) -> ir.Model:
    # None, not {}, for an input without dynamic axes: torch wants an entry per input
    shapes = {name: dict(axes[name]) if axes.get(name) else None for name in bound.tensors}
    try:
        with quiet_exporter():
            program = torch.onnx.export(
                module,
                bound.args,
                kwargs=bound.kwargs,
                dynamo=True,
                verbose=False,
                opset_version=opset,
                input_names=list(bound.tensors),
                output_names=output_names,
                dynamic_shapes=shapes,
                custom_translation_table=translation_table(opset),
            )
    except torch.onnx.OnnxExporterError as error:
        raise UnsupportedError(_explained(module, error)) from error
    if program is None:
        raise AssertionError("torch.onnx.export(dynamo=True) returns a program")
    return program.model


class Limits(NamedTuple):
    """What the check of an exported model goes by.

    Attributes:
        grids: number of tensors that are rounded; 0: a float model.
        tolerance: the caller's, or None.
    """

    grids: int
    tolerance: float | None


def _explained(module: nn.Module, error: BaseException) -> str:
    """What failed in one line, the exporter's own reason, and the remedy where it is known."""
    reasons = []
    cause: BaseException | None = error
    while cause is not None:
        reasons.append(str(cause))
        cause = cause.__cause__
    known = [advice for mark, advice in _ADVICE if any(mark in reason for reason in reasons)]
    innermost = " ".join(reasons[-1].split())[:400]
    remedy = known[0] if known else "change the line of forward that the message above names."
    return f"{type(module).__name__} cannot be exported to ONNX: {innermost}\nWhat to do: {remedy}"


def _check_values(
    module: nn.Module,
    model: ir.Model,
    bound: BoundInputs,
    axes: Mapping[str, Mapping[int, str]],
    limits: Limits,
) -> None:
    """The example inputs, and where the batch is dynamic also one row and one row more."""
    batches = _batch_axes(axes)
    trials = [bound]
    if batches:
        name, axis = next(iter(batches.items()))
        rows = bound.tensors[name].shape[axis]
        trials += [bound.resized(batches, size) for size in (1, rows + 1)]
    threads = 1 if quantized_graph.computes_in_threads(model) else None
    with runtime.open_session(model, threads=threads) as session:
        for trial in trials:
            _check_trial(module, model, session.run, trial, limits)


def _check_trial(
    module: nn.Module, model: ir.Model, run: Run, trial: BoundInputs, limits: Limits
) -> None:
    tolerance = limits.tolerance
    if limits.grids:
        outputs = quantized_graph.output_scales(model)
        check_in_steps(module, run, outputs, trial, limits.grids, tolerance)
        return
    limit = relative_tolerance(module) if tolerance is None else tolerance
    names = [value.name or "" for value in model.graph.outputs]
    check_against(module, run, names, trial, limit)


def _batch_axes(axes: Mapping[str, Mapping[int, str]]) -> dict[str, int]:
    """Input name -> batch axis: the axes called "batch", else those called as the first axis 0."""
    named = [size for of in axes.values() for size in of.values() if size == BATCH]
    firsts = [of[0] for of in axes.values() if 0 in of]
    label = next(iter([*named, *firsts]), None)
    return {name: axis for name, of in axes.items() for axis, size in of.items() if size == label}
