"""The one function: recognises what it got, imports it, and holds the result against torch."""

import copy
import enum
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import onnx_ir as ir
import torch
from torch import fx, nn
from torch.export import ExportedProgram

from onnxq import targets
from onnxq.checking.validation_run import try_alone
from onnxq.core.arrays import Array
from onnxq.errors import QConfigError, UnsupportedError, kind_of, listed, nearest
from onnxq.graph import io
from onnxq.pytorch.arguments.axes import DynamicAxes
from onnxq.pytorch.arguments.bound_inputs import HALVES, BoundInputs, Inputs, bind
from onnxq.pytorch.arguments.example_inputs import example_inputs
from onnxq.pytorch.arguments.forward import compute, eval_mode, flatten
from onnxq.pytorch.exporting.agreement import Engine
from onnxq.pytorch.exporting.check import check_against, relative_tolerance
from onnxq.pytorch.exporting.check_quantized import check_in_lsb
from onnxq.pytorch.exporting.exact_sums import check_here_or_exactly
from onnxq.pytorch.exporting.exporter import DEFAULT_OPSET, export
from onnxq.pytorch.importers import programs
from onnxq.pytorch.importers.converted import is_converted, traceable
from onnxq.pytorch.importers.dynamic_modules import dequantized_modules, quantize_again
from onnxq.pytorch.importers.float_results import FloatResults, treat_float_results
from onnxq.pytorch.importers.int8_weights import (
    ImportedWeights,
    limit_of,
    narrow,
    warn_of_endangered,
)
from onnxq.pytorch.importers.notes import ImportedModelWarning, collected, note
from onnxq.pytorch.importers.packed import packed_weights
from onnxq.pytorch.importers.patterns import restore_quantizers
from onnxq.pytorch.importers.tensor_quantizers import has_tensor_quantizers, with_own_quantizers
from onnxq.pytorch.modules.places import copy_structure
from onnxq.pytorch.nn.quantized.dynamic.torchao import Taken, taken_from_torchao
from onnxq.qdq.qoperator import check_format
from onnxq.qdq.tidy import as_format, count_quantizers, output_scales, tidy_quantized
from onnxq.qdq.tidy.sums import disagreeing_sums
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.targets import Target

# What torch says about itself, that a caller can do nothing about: message as a regex.
_NOISE = (
    "(?s).*torch.ao.quantization is deprecated",
    "quantized tensor creation functions",
    "Please use quant_min and quant_max to specify the range",
    "must run observer before calling calculate_qparams",
    "The current implementation of the .* module has poor numerical accuracy",
    ".*TypedStorage is deprecated",
    r"`isinstance\(treespec, LeafSpec\)`",
    # said below, with what an import can do about it
    "(?s).*may round some of these sums",
    "on this machine .* pairs of products",
)


def import_quantized(
    model: nn.Module | ExportedProgram,
    inputs: Inputs | None = None,
    path: str | Path | None = None,
    *,
    opset: int = DEFAULT_OPSET,
    output_names: Sequence[str] | None = None,
    dynamic_axes: DynamicAxes | None = None,
    tolerance: float | None = None,
    format: str = "qdq",
    weights: ImportedWeights | str = ImportedWeights.KEEP,
    float_results: FloatResults | str = FloatResults.FLOAT,
    target: str | Target | None = None,
) -> QuantizedModel:
    """A model that torch.ao, torchao or fake quantization by hand quantized, as ONNX.

    Args:
        model: see onnxq.pytorch.importers; it is not changed.
        inputs: example inputs, as `onnxq.export` takes them; None: what the model, its file or the
            exported program offers.
        path: where to write it; None writes nothing.
        opset: 18 to 22.
        output_names: in order; None: the exporter's names.
        dynamic_axes: as `onnxq.export` takes them; None finds the batch, but fixes all shapes of a
            program that was exported with fixed ones.
        tolerance: largest accepted difference between ONNX Runtime and torch, in LSB of a
            quantized output; None derives it from the number of quantized tensors.
        format: "qdq" or "qoperator", as `onnxq.rewrite` has them.
        weights: "keep" torch's integers, or "narrow" them to what the target computes exactly.
        float_results: how convolutions run that a PT2E program gives no quantized result: "float"
            or "requantize".
        target: the machine that the result is for; None: any (`portable`).
    Returns:
        The model, with int8 weights and int32 biases.
    Raises:
        UnsupportedError: nothing is quantized, or something that has no form here; the message
            names module or node, type, and what to do.
        CalibrationError: a prepared model that has seen no data.
        VerificationError: the ONNX model computes something else than the torch model.
        ModelError, QConfigError, OutputError: as `onnxq.export`.
    Warns:
        ImportedModelWarning: channels that torch trained with asymmetric qparams, weights that some
            machines do not compute exactly, sums of integers that some machines round otherwise,
            convolutions that stay in float.
    """
    check_format(format)
    options = _Options(
        opset, output_names, dynamic_axes, tolerance,
        _choice(ImportedWeights, weights), _choice(FloatResults, float_results),
        None if target is None else targets.resolve(target),
    )  # fmt: skip
    if path is not None:
        io.check_writable(path)
    with collected() as notes, warnings.catch_warnings():
        for message in _NOISE:
            warnings.filterwarnings("ignore", message)
        imported, arrays = _imported(model, inputs, options)
        if count_quantizers(imported):
            imported = as_format(imported, format)
    made = QuantizedModel.of(imported)
    made.attach(try_alone(made, arrays))
    for text in notes:
        warnings.warn(text, ImportedModelWarning, stacklevel=2)
    if path is not None:
        io.save(made, path)
    return made


ANY_DIFFERENCE = 1.0
"""Tolerance of an export that is compared later: a share of the largest output."""


# --- options


@dataclass(frozen=True, slots=True)
class _Options:
    """Arguments of import_quantized."""

    opset: int
    output_names: Sequence[str] | None
    dynamic_axes: DynamicAxes | None
    tolerance: float | None
    weights: ImportedWeights
    float_results: FloatResults
    target: Target | None


_Choice = TypeVar("_Choice", bound=enum.Enum)


def _choice(kind: type[_Choice], value: _Choice | str) -> _Choice:
    """The member that a name stands for."""
    if isinstance(value, kind):
        return value
    known = [str(member.value) for member in kind]
    if value not in known:
        what = "weights" if kind is ImportedWeights else "float_results"
        raise QConfigError(
            f"{what} {value!r}: wanted one of {', '.join(known)}.{nearest(str(value), known)}"
        )
    return kind(value)


# --- the kinds of models


class _Imported(NamedTuple):
    """A model and the example inputs that it was made on."""

    model: ir.Model
    arrays: dict[str, Array]


def _imported(
    model: nn.Module | ExportedProgram, inputs: Inputs | None, options: _Options
) -> _Imported:
    if isinstance(model, ExportedProgram):
        return _program(model, _inputs_of(model, inputs), options)
    if not isinstance(model, nn.Module):
        raise UnsupportedError(
            f"the model is {kind_of(model)}; wanted a torch.nn.Module or a "
            "torch.export.ExportedProgram."
        )
    given = example_inputs(model) if inputs is None else inputs
    if programs.is_prepared_program(model):
        assert isinstance(model, fx.GraphModule)
        return _program(programs.convert_program(model), given, options)
    if programs.is_program(model):
        assert isinstance(model, fx.GraphModule)
        return _program(model, given, options)
    taken = taken_from_torchao(model)
    if taken is not None:
        return _torchao(model, taken, given, options)
    if has_tensor_quantizers(model):
        return _tensor_quantizers(model, given, options)
    return _torch_ao(_converted(model), given, options)


def _converted(model: nn.Module) -> nn.Module:
    """The model itself, or converted where torch.ao has only prepared it."""
    if not any(type(part).__module__.startswith("torch.ao.") for part in model.modules()):
        return model
    try:  # not at the top: torch has announced its removal, and other models do not need it
        from onnxq.pytorch.importers.trained import convert_as_trained, is_prepared
    except ImportError as error:
        raise UnsupportedError(
            f"torch {torch.__version__} has no torch.ao.quantization, which this model was made "
            "with. Import it with torch 2.13."
        ) from error
    return convert_as_trained(model) if is_prepared(model) else model


def _torch_ao(model: nn.Module, inputs: Inputs, options: _Options) -> _Imported:
    """Converted models, static and dynamic, and modules with fake quantization by hand."""
    dequantized, modules = dequantized_modules(model)
    made = copy_structure(model, {**modules, **packed_weights(model, dequantized.paths)})
    bound = bind(made, inputs)
    static = is_converted(made)
    if static:
        made = traceable(made, bound)
    # what is float now is compared in float rounding, or, where it rounds by itself, in LSB below
    in_lsb = options.tolerance if static else (None if dequantized.paths else ANY_DIFFERENCE)
    exported = _exported(made, inputs, replace(options, tolerance=in_lsb))
    if not static and not dequantized.paths:
        return _written_out(made, exported, bound, options)
    if static:
        _check(made if dequantized.paths else _Dequantized(model).eval(), exported, bound, options)
    if dequantized.paths:
        limit = None  # weights as torch has them
        if options.weights is not ImportedWeights.KEEP:
            limit = limit_of(targets.resolve(options.target), saturates=True)
        exported = quantize_again(made, exported, dequantized, limit)
    return _finished(exported, bound, options)


def _tensor_quantizers(model: nn.Module, inputs: Inputs, options: _Options) -> _Imported:
    """Modules with the TensorQuantizers of pytorch_quantization."""
    made = with_own_quantizers(model)
    exported, bound = _exported(made, inputs, options), bind(made, inputs)
    _check(copy.deepcopy(model).eval(), exported, bound, options)
    return _finished(exported, bound, options)


def _torchao(model: nn.Module, taken: Taken, inputs: Inputs, options: _Options) -> _Imported:
    """Models after torchao's quantize_, and in its training."""
    for text in taken.notes:
        note(f"{type(model).__name__}: {text}.")
    exported, bound = _exported(taken.model, inputs, options), bind(taken.model, inputs)
    halves = any(x.dtype in HALVES for x in model.parameters())
    if not taken.notes and not halves:  # else torchao computes something else
        names = [str(value.name) for value in exported.graph.outputs]
        tolerance = options.tolerance or relative_tolerance(taken.model)
        with eval_mode(model), eval_mode(taken.model):
            ours = [x.detach().numpy() for x in flatten(compute(taken.model, bound))]
            check_against(model, lambda _: ours, names, bound, tolerance)
    return _finished(exported, bound, options)


def _program(
    program: fx.GraphModule | ExportedProgram, inputs: Inputs, options: _Options
) -> _Imported:
    """PT2E programs."""
    made = programs.traceable_program(program)
    if options.dynamic_axes is None and not programs.has_dynamic_shapes(made):
        options = replace(options, dynamic_axes={})
    return _finished(_exported(made, inputs, options), bind(made, inputs), options)


def _written_out(
    model: nn.Module, exported: ir.Model, bound: BoundInputs, options: _Options
) -> _Imported:
    """Modules that compute fake quantization in float operators."""
    if not restore_quantizers(exported) and not count_quantizers(exported):
        raise UnsupportedError(
            f"nothing in {type(model).__name__} is quantized: it has no quantized module of "
            "torch.ao, no quantize operator, and nothing that computes clip(round(x / s)) * s with "
            "constant s. Quantize it with onnxq: onnxq.export, then onnxq.quantize."
        )
    tidy_quantized(exported)
    _check(model, exported, bound, options)
    return _finished(exported, bound, options)


def _inputs_of(program: ExportedProgram, inputs: Inputs | None) -> Inputs:
    """The inputs that were given, or that the program was exported with."""
    if inputs is not None:
        return inputs
    if not program.example_inputs:
        raise QConfigError("the exported program has no example inputs; pass inputs.")
    args, kwargs = program.example_inputs
    if kwargs:
        raise QConfigError(
            "the exported program was exported with keyword inputs; pass inputs as a mapping."
        )
    return tuple(args)


# --- what all have in common


def _exported(model: nn.Module, inputs: Inputs, options: _Options) -> ir.Model:
    return export(
        model,
        inputs,
        opset=options.opset,
        output_names=options.output_names,
        dynamic_axes=options.dynamic_axes,
        tolerance=options.tolerance,
    )


def _finished(model: ir.Model, bound: BoundInputs, options: _Options) -> _Imported:
    arrays = bound.arrays
    treat_float_results(model, options.float_results, arrays)
    if options.target is None or options.target.agreeing_sums:
        _note_sums(model)
    if options.weights is ImportedWeights.NARROW:
        narrow(model, targets.resolve(options.target))
    else:
        warn_of_endangered(model, options.target)
    return _Imported(model, arrays)


def _note_sums(model: ir.Model) -> None:
    """Names sums that some machines round otherwise: imported scales stay."""
    names = list(disagreeing_sums(model))
    if names:
        note(
            f"{listed(names)}: ARM, x86 without AVX2 or WebAssembly may round a few pairs of "
            "integers "
            "otherwise than other machines; their scales were imported as they are. onnxq.predict "
            "names the pairs. Models that onnxq quantizes or trains have scales for which all "
            "machines agree."
        )


def _check(reference: nn.Module, exported: ir.Model, bound: BoundInputs, options: _Options) -> None:
    """Holds ONNX Runtime against the module that was imported, not only the one it became."""
    outputs, roundings = output_scales(exported), count_quantizers(exported)

    def check(engine: Engine) -> None:
        with engine(exported) as session:
            check_in_lsb(reference, session.run, outputs, bound, roundings, options.tolerance)

    check_here_or_exactly(check, exported, [bound])


class _Dequantized(nn.Module):
    """A module whose quantized results are dequantized."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> list[torch.Tensor]:
        """Every tensor of the result, in float32."""
        results = flatten(self.model(*args, **kwargs))
        return [x.dequantize() if x.is_quantized else x for x in results]
