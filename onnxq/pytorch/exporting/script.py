"""ScriptModule -> float ONNX model. torch.export does not take one; torch's older exporter does."""

import io
import warnings
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir
import torch

from onnxq.errors import QConfigError, UnsupportedError, kind_of
from onnxq.ort import runtime
from onnxq.pytorch.arguments.axes import BATCH
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs, positional
from onnxq.pytorch.exporting.check import check_against, relative_tolerance

SCRIPT_OPSET = 20  # the last one that this exporter writes


def check_script_request(usual_opset: object, *others: object) -> None:
    """Passes an export that asks for what torch's older exporter gives."""
    if not usual_opset or any(other is not None for other in others):
        raise UnsupportedError(
            f"a ScriptModule is exported in opset {SCRIPT_OPSET}, with the names of its forward, "
            "and axis 0 as the batch. Leave opset, input_names, output_names and dynamic_axes out, "
            "or export the module that it was made of."
        )


def bind_script(model: torch.jit.ScriptModule, inputs: Inputs) -> BoundInputs:
    """Inputs under the names of forward's parameters."""
    forward: Any = model.forward
    names = [argument.name for argument in forward.schema.arguments[1:]]
    if isinstance(inputs, Mapping):
        if list(inputs) != names[: len(inputs)]:
            raise QConfigError(
                f"forward({', '.join(names)}) of a ScriptModule got {', '.join(inputs)}; wanted "
                "its first parameters, in order."
            )
        inputs = list(inputs.values())
    inputs = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    if len(inputs) > len(names) or not inputs:
        raise QConfigError(f"forward({', '.join(names)}) got {len(inputs)} inputs.")
    tensors: dict[str, torch.Tensor] = {}
    for name, value in zip(names, inputs, strict=False):
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(f"forward's '{name}' is {kind_of(value)}; wanted a tensor.")
        tensors[name] = value
    return positional(tensors)


def export_script(model: torch.jit.ScriptModule, inputs: BoundInputs) -> ir.Model:
    """The module as a float ONNX model; axis 0 of every input is the batch."""
    file: Any = io.BytesIO()  # which the older exporter takes too
    names = list(inputs.tensors)
    axes = {name: {0: BATCH} for name, x in inputs.tensors.items() if x.ndim}
    try:
        with warnings.catch_warnings():
            # it is deprecated, says so, and is the only exporter that takes a ScriptModule
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model,
                tuple(inputs.tensors.values()),
                file,
                dynamo=False,
                opset_version=SCRIPT_OPSET,
                input_names=names,
                dynamic_axes=axes,
                training=torch.onnx.TrainingMode.PRESERVE,
                do_constant_folding=False,
                verbose=False,
            )
    except (torch.onnx.OnnxExporterError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:400]
        raise UnsupportedError(
            f"the ScriptModule cannot be exported to ONNX: {reason}\nWhat to do: quantize the "
            "module that it was scripted from (prepare, or onnxq.export and onnxq.quantize)."
        ) from error
    exported = ir.from_proto(onnx.load_from_string(file.getvalue()))
    outputs = [str(value.name) for value in exported.graph.outputs]
    examples = [inputs]
    if axes:
        examples.append(inputs.resized(dict.fromkeys(axes, (0,)), 1))
    with runtime.open_session(exported) as session:
        for example in examples:
            check_against(model, session.run, outputs, example, relative_tolerance(model))
    return exported
