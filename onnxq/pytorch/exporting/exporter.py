"""PyTorch module -> ONNX model: one file, dynamic batch, checked against the module.

Usage: onnxq.export(module, example_images, "model.onnx")

A quantized module (of `convert`) becomes a quantized model, a prepared one is converted first.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING

from onnxq.checking.validation_run import try_alone
from onnxq.errors import QConfigError, UnsupportedError
from onnxq.graph import io
from onnxq.graph.annotations import Annotations
from onnxq.pytorch.arguments.axes import Axes, DynamicAxes, resolved
from onnxq.pytorch.arguments.batch_axes import batch_axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs, bind, positional
from onnxq.pytorch.arguments.cache import without_cache
from onnxq.pytorch.arguments.flat import flattened, is_flat
from onnxq.pytorch.arguments.flat import output_names as names_of
from onnxq.pytorch.exporting.check import check_dtypes, check_projections
from onnxq.pytorch.exporting.check_sizes import Limits, check_sizes
from onnxq.pytorch.exporting.not_a_number import run_in_numbers
from onnxq.pytorch.exporting.result import check_request, own_weights, tidy
from onnxq.pytorch.exporting.script import bind_script, check_script_request, export_script
from onnxq.pytorch.exporting.trace import trace
from onnxq.pytorch.exporting.whole_layers import merge_directions
from onnxq.pytorch.modules.adapter import Model, as_module, exported_axes, in_float32, is_scripted
from onnxq.pytorch.modules.transformers import without_shortcuts
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.train.agreeing_sums import warn_of_sums
from onnxq.pytorch.train.conversion import check_prepared, convert_in_place
from onnxq.qdq.qoperator import check_format
from onnxq.qdq.tidy import as_format, count_quantizers, holds_integers, tidy_quantized
from onnxq.quantized.quantized_model import QuantizedModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import onnx_ir as ir
    from torch import nn


MIN_OPSET = 18  # the exporter's translations are written for it; asked for less it returns 18
MAX_OPSET = 22  # from 23 on attention becomes one Attention node, which hides its MatMuls
DEFAULT_OPSET = 21
"""GELU and GroupNorm stay one node; Q and DQ take 4- and 16-bit types without a conversion."""


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
        path: where to write it, as one file (see `onnxq.save` for more than 1.9 GB of weights);
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
            in LSB of a quantized output; None derives it from the module's size.
        format: of a quantized model, "qdq" or "qoperator", as `onnxq.rewrite` has them.
    Returns:
        The model, of a quantized module an onnxq.QuantizedModel; its weights are copies, so that
        it stays as it is when training goes on.
    Raises:
        QConfigError: inputs, names or axes that forward does not have.
        ModelError: parameters in float64; a path that holds no program; forward fails on the
            example inputs, or in every other batch size; NaN comes to a layer that has integers of
            it.
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
    module = as_module(module)
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
    asked = exported_axes(module, given) if dynamic_axes is None else resolved(dynamic_axes, given)
    with eval_mode(module):
        outputs = run_in_numbers(module, given)
        axes = asked or batch_axes(module, given)
        bound = traceable(given, axes)
        names = output_names or names_of(outputs, bound.tensors)
        traced = without_shortcuts(module)
        if is_flat(bound, outputs):
            model = trace(traced, bound, axes, opset, names)
        else:
            flat = flattened(traced, bound)
            model = trace(flat, positional(bound.tensors), axes, opset, names)
        check_request(model, list(bound.tensors), axes.of, opset, names)
        tidy(model)
        merge_directions(model)
        roundings = count_quantizers(model)
        is_quantized = bool(roundings) or holds_integers(model)
        if is_quantized:
            tidy_quantized(model)
            warn_of_sums(module, model)
            model = QuantizedModel.of(as_format(model, format))
        check_sizes(module, model, bound, axes, Limits(roundings, tolerance))
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
