"""Converted torch.ao models (eager and FX) as modules that torch.export takes.

Nothing of the model's own code changes: its packed parameters become buffers (`packed`), its
forward runs in a `Region`, and the first run on the example inputs makes the constants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx, nn

from onnxq.pytorch.arguments.forward import first_run
from onnxq.pytorch.importers.activation_qparams import Constants
from onnxq.pytorch.importers.packed import make_printable
from onnxq.pytorch.importers.quantized_ops import OPERATORS
from onnxq.pytorch.importers.region import run_in_region

if TYPE_CHECKING:
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

CONSTANTS = "imported"
"""Name of the submodule that holds scales, zero points and biases."""


_MODULES = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def is_converted(model: nn.Module) -> bool:
    """Whether the model computes on quantized tensors of torch.

    Dynamic modules of torch.ao are not asked about: they have given way to float modules.
    """
    if any(type(part).__module__.startswith(_MODULES) for part in model.modules()):
        return True
    nodes = model.graph.nodes if isinstance(model, fx.GraphModule) else ()
    return any(node.target is torch.quantize_per_tensor for node in nodes)


def traceable(model: nn.Module, inputs: BoundInputs) -> nn.Module:
    """The model in Q/DQ form, in float32, for torch.export.

    Args:
        model: a copy of a converted model, with its weights unpacked; it is changed.
        inputs: example inputs.
    """
    made = _plain(model).eval()
    make_printable(made)
    _numbers_from_buffers(made)
    constants = Constants()
    made.forward = run_in_region(made, constants, OPERATORS)
    made.add_module(CONSTANTS, constants)
    first_run(made, inputs)
    constants.freeze()
    return made


def _plain(model: nn.Module) -> nn.Module:
    """The module itself, but of a GraphModule one with its forward: torch.export runs its graph."""
    if not isinstance(model, fx.GraphModule):
        return model
    kind = type("GraphModule", (nn.Module,), {"forward": type(model).forward})
    made: nn.Module = kind()
    made.__dict__.update(
        {name: value for name, value in vars(model).items() if name not in ("_graph", "_integer")}
    )
    return made


def _numbers_from_buffers(model: nn.Module) -> None:
    """Scales and zero points that torch.ao's modules convert to numbers, which tracing cannot."""
    for module in model.modules():
        if not type(module).__module__.startswith("torch.ao.nn."):
            continue
        for name in ("scale", "zero_point"):
            value = module._buffers.get(name)
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                del module._buffers[name]
                setattr(module, name, value.item())
