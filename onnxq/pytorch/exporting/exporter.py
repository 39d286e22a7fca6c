"""PyTorch module -> ONNX model: one file, dynamic batch, checked against the module.

Usage: onnxq.export(module, example_images, "model.onnx")

A quantized module (of `convert`) becomes a quantized model, a prepared one is converted first.

Runs an exported model beside its module, on the example inputs and in other sizes.
"""

import copy
import functools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir
import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from onnxq.checking.validation_run import try_alone
from onnxq.errors import ModelError, QConfigError, UnsupportedError, VerificationError
from onnxq.graph import io
from onnxq.graph.annotations import Annotations
from onnxq.pytorch.arguments.axes import Axes, DynamicAxes, resolved
from onnxq.pytorch.arguments.batch_axes import batch_axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs, bind, positional
from onnxq.pytorch.arguments.flat import flattened, is_flat, without_cache
from onnxq.pytorch.arguments.flat import output_names as names_of
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, compute, eval_mode, first_run, flatten
from onnxq.pytorch.exporting.agreement import Engine, layer_by_layer
from onnxq.pytorch.exporting.check import (
    check_against,
    check_dtypes,
    check_projections,
    relative_tolerance,
)
from onnxq.pytorch.exporting.check_quantized import check_in_lsb
from onnxq.pytorch.exporting.exact_sums import check_here_or_exactly
from onnxq.pytorch.exporting.optimized import check_request, own_weights, tidy
from onnxq.pytorch.exporting.script import bind_script, check_script_request, export_script
from onnxq.pytorch.exporting.trace import trace
from onnxq.pytorch.modules.adapter import Model, as_module, exported_axes, in_float32, is_scripted
from onnxq.pytorch.modules.places import hooked
from onnxq.pytorch.nn.quantized.dynamic.torchao import taken_from_torchao
from onnxq.pytorch.nn.quantized.stored import Stored
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.pytorch.train.agreeing_sums import warn_of_sums
from onnxq.pytorch.train.conversion import check_prepared, convert_in_place
from onnxq.qdq.qoperator import check_format
from onnxq.qdq.tidy import (
    as_format,
    count_quantizers,
    holds_integers,
    output_scales,
    tidy_quantized,
)
from onnxq.quantized.quantized_model import QuantizedModel

# --- NaN among the example inputs' results: named, for the model would pass it on in silence.
#
# QuantizeLinear turns NaN into some integer (ONNX leaves open which): a quantized model gives
# numbers where its module, asked in float, has none.


def run_in_numbers(module: nn.Module, inputs: BoundInputs) -> object:
    """The module's result for the example inputs; a warning says where NaN in it comes from."""
    parts = {name: part for name, part in module.named_modules() if isinstance(part, Stored)}
    refusals = {name: functools.partial(_refuse_nan, name, inputs) for name in parts}
    with hooked([parts[n].register_forward_pre_hook(refuse) for n, refuse in refusals.items()]):
        outputs = first_run(module, inputs)
    nan = [index for index, x in enumerate(flatten(outputs)) if _holds_nan(x)]
    if nan:
        warnings.warn(
            f"{type(module).__name__}: output {nan[0]} holds NaN on the example inputs"
            f"{_origin(module, inputs)}. It is exported as it is; give other example inputs to "
            "have these numbers compared.",
            stacklevel=3,
        )
    return outputs


def _refuse_nan(name: str, inputs: BoundInputs, part: nn.Module, args: tuple[object, ...]) -> None:
    """Refuses NaN ahead of a layer that rounds it to integers."""
    if any(map(_holds_nan, args)):
        raise ModelError(
            f"'{name}' ({type(part).__name__}) is given NaN with the example inputs"
            f"{_of_inputs(inputs)}: integers cannot say that, and the exported model would give "
            "some number in its place. Give example inputs without, or mend the layer ahead of it."
        )


def _of_inputs(inputs: BoundInputs) -> str:
    """Which inputs hold NaN themselves."""
    found = [f"'{name}'" for name, x in inputs.tensors.items() if _holds_nan(x)]
    return f", of which {', '.join(found)} hold NaN" if found else ""


def _origin(module: nn.Module, inputs: BoundInputs) -> str:
    """A phrase with the parameter or layer that NaN comes from, or the inputs."""
    own = [name for name, x in module.named_parameters() if _holds_nan(x)]
    if own:
        return f": parameter '{own[0]}' does"
    if of_inputs := _of_inputs(inputs):
        return of_inputs
    found: list[nn.Module] = []

    def note(part: nn.Module, _: object, result: object) -> None:
        if any(map(_holds_nan, tree_leaves(result))):
            found.append(part)

    names = {part: name for name, part in module.named_modules() if name}
    with hooked([part.register_forward_hook(note) for part in names]):
        compute(module, inputs)
    return f": the first layer whose result does is '{names[found[0]]}'" if found else ""


def _holds_nan(x: object) -> bool:
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return False
    return bool(x.detach().isnan().any())


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
            file; one that torchao's quantize_ changed; a scripted or traced module (in opset 20, by
            torch's older exporter, with tensors as inputs). One in half precision is exported in
            float32, with a warning.
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
    module = as_module(_without_torchao(module))
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
        if is_flat(bound, outputs):
            model = trace(module, bound, axes, opset, names)
        else:
            flat = flattened(module, bound)
            model = trace(flat, positional(bound.tensors), axes, opset, names)
        check_request(model, list(bound.tensors), axes.of, opset, names)
        tidy(model)
        roundings = count_quantizers(model)
        is_quantized = bool(roundings) or holds_integers(model)
        if is_quantized:
            tidy_quantized(model)
            warn_of_sums(module, model)
            model = QuantizedModel.of(as_format(model, format))
        trials = [bound, *_other_sizes(module, bound, axes)]
        check = functools.partial(_check_examples, module, model, trials, roundings, tolerance)
        check_here_or_exactly(check, model, trials)
    if path is not None:
        io.save(model, path, Annotations.DROPPED if is_quantized else Annotations.KEPT)
    own_weights(model)
    if isinstance(model, QuantizedModel):
        model.attach(try_alone(model, bound.arrays))
    return model


def _without_torchao(module: Model) -> Model:
    """The module with layers of onnxq where torchao's quantize_ was."""
    taken = taken_from_torchao(module) if isinstance(module, nn.Module) else None
    if taken is None:
        return module
    for note in taken.notes:
        warnings.warn(f"{type(module).__name__}: {note}.", stacklevel=3)
    return taken.model


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


def _other_sizes(module: nn.Module, bound: BoundInputs, axes: Axes) -> Iterator[BoundInputs]:
    """One row and one row more; of the other sizes, each by itself, one less."""
    for label in axes.labels:
        if axes.terms(label):
            continue
        length = axes.length(bound, label)
        sizes = (1, length + 1) if label == axes.batch else (length - 1,)
        for size in sizes:
            if axes.allows(label, size):
                validation = axes.resized(bound, label, size)
                if size != 1 or not _wants_rows(module, validation):
                    yield validation


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
            stacklevel=4,
        )
        return True
    except FORWARD_RAISES:
        return False  # said where it is compared
    return False


_PADDING = (
    "In eval mode, torch's nn.TransformerEncoder sets results at padded positions to 0, as an ONNX "
    "model does not: build it with enable_nested_tensor=False."
)


def _check_examples(
    module: nn.Module,
    model: ir.Model,
    trials: Sequence[BoundInputs],
    roundings: int,
    tolerance: float | None,
    engine: Engine,
) -> None:
    """Compares both on all trials; roundings: number of tensors that are rounded; 0: of none."""
    by_layer = None
    if isinstance(module, fx.GraphModule):
        by_layer = functools.partial(layer_by_layer, module, model, engine)
    limit = relative_tolerance(module) if tolerance is None else tolerance
    names = [value.name or "" for value in model.graph.outputs]
    with engine(model) as session:
        for one in trials:
            if roundings:
                scales = output_scales(model)
                check_in_lsb(module, session.run, scales, one, roundings, tolerance, by_layer)
                continue
            try:
                check_against(module, session.run, names, one, limit)
            except VerificationError as error:
                encoders = (m for m in module.modules() if isinstance(m, nn.TransformerEncoder))
                if not any(encoder.use_nested_tensor for encoder in encoders):
                    raise
                raise VerificationError(f"{error} {_PADDING}") from error
