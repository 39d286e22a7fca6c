"""Adapter of export and training: a plain nn.Module of every form in which users have a model.

    ExportedProgram, path of a .pt2, program.module()  ->  its graph, with weights by their names
    torch.compile(module)                              ->  module
    module.half(), module.bfloat16()                   ->  a copy in float32, with a warning

A ScriptModule is itself: it has no Python code to trace.
"""

import copy
import warnings
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import fx, nn
from torch._dynamo import OptimizedModule
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from onnxq.errors import ModelError, UnsupportedError, kind_of
from onnxq.pytorch.arguments.axes import BATCH, UNBOUNDED, Axes
from onnxq.pytorch.arguments.bound_inputs import HALVES, BoundInputs
from onnxq.pytorch.modules.program_file import read_program
from onnxq.pytorch.numerics.exact_buffers import ExactBuffers

Model = nn.Module | ExportedProgram | str | Path
"""A module; or what torch.export made of one, or the file that torch.export.save wrote."""

_MARK = "onnxq.program"
aten = torch.ops.aten
DROPOUTS = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)
"""Operators of dropout."""
TRAINS = {aten.batch_norm.default: 5, aten.instance_norm.default: 5, **dict.fromkeys(DROPOUTS, 2)}
"""Operators with an argument that says whether they train -> its position."""


def as_module(model: Model) -> nn.Module:
    """The plain module."""
    if isinstance(model, str | Path):
        model = read_program(Path(model))
    if isinstance(model, ExportedProgram):
        return _evaluated(model.module(check_guards=False))
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"the model is {kind_of(model)}; wanted a torch.nn.Module (an instance, not its "
            "class), an ExportedProgram of torch.export, or the path of a .pt2 file."
        )
    if isinstance(model, OptimizedModule):  # of torch.compile
        return as_module(model._orig_mod)  # noqa: SLF001  # torch has no other name for it
    # ExportedProgram.module() made it: eval and train are functions that raise
    if isinstance(model, fx.GraphModule) and "eval" in vars(model):
        return _evaluated(model)
    if is_scripted(model):
        return model
    return _in_float32(model)


def is_scripted(model: object) -> TypeGuard[torch.jit.ScriptModule]:
    """Whether torch.jit.script or trace made it."""
    return isinstance(model, torch.jit.ScriptModule)


def check_traceable(model: nn.Module, wanted_by: str) -> None:
    """Passes a module whose forward is Python code or a graph."""
    if is_scripted(model):
        raise UnsupportedError(
            f"{wanted_by}: got a ScriptModule, of torch.jit.script or trace, which has no Python "
            "code to trace. Give the module that it was made of; or onnxq.export it, and quantize "
            "the ONNX model."
        )


def in_float32(inputs: Any) -> Any:
    """Example inputs in float32 where they had half precision; copies of inference tensors.

    Autograd keeps no tensor that was made under torch.inference_mode.
    """

    def usable(x: torch.Tensor) -> torch.Tensor:
        if x.dtype in HALVES:
            return x.float()
        return x.clone() if x.is_inference() else x

    return pytree.tree_map_only(torch.Tensor, usable, inputs)


def exported_axes(model: nn.Module, bound: BoundInputs) -> Axes | None:
    """The dynamic axes that a program was exported with; None: the module is no program.

    A size that is computed from another one counts as fixed.
    """
    if not isinstance(model, fx.GraphModule) or not model.meta.get(_MARK):
        return None
    values = [n.meta.get("val") for n in model.graph.nodes if n.op == "placeholder"]
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    axes = Axes({}, {})
    batch = None
    for (name, _), shape in zip(bound.tensors.items(), shapes, strict=True):
        for axis, size in enumerate(shape):
            if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
                continue
            symbol = size.node.expr
            batch = symbol if batch is None and axis == 0 else batch
            label = BATCH if symbol == batch else str(symbol)
            axes.of.setdefault(name, {})[axis] = label
            span = size.node.shape_env.var_to_range[symbol]
            axes.ranges[label] = (max(1, int(span.lower)), int(min(span.upper, UNBOUNDED)))
    return axes


def _evaluated(program: nn.Module) -> nn.Module:
    """The graph of a program as it computes in eval mode, in a module that has modes.

    Guards on sizes are left out: an export of it has guards of its own.
    """
    assert isinstance(program, fx.GraphModule)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of a class that the graph's pytree is of
        graph = copy.deepcopy(program.graph)
    made = fx.GraphModule(program, graph, type(program).__name__)
    for node in list(made.graph.nodes):
        guards = node.op == "call_module" and str(node.target).startswith("_guards")
        changes = node.op == "call_function" and str(node.target) == "aten.add_.Tensor"
        if not node.users and (guards or changes):
            made.graph.erase_node(node)
            continue
        position = TRAINS.get(node.target)
        if position is not None and len(node.args) > position:
            node.update_arg(position, False)
    made.graph.eliminate_dead_code()
    made.delete_all_unused_submodules()
    made.recompile()
    made.meta[_MARK] = True
    return _in_float32(made.eval())


def _in_float32(model: nn.Module) -> nn.Module:
    """The module, or a copy in float32 where parameters are of half precision."""
    floats = (part for part in model.modules() if not isinstance(part, ExactBuffers))
    own = ((*m.parameters(recurse=False), *m.buffers(recurse=False)) for m in floats)
    dtypes = {x.dtype for tensors in own for x in tensors}
    halves = [str(dtype).removeprefix("torch.") for dtype in HALVES if dtype in dtypes]
    if not halves:
        return model
    warnings.warn(
        f"{type(model).__name__} holds {' and '.join(halves)}: it is taken in float32, a copy. "
        "ONNX Runtime's CPU computes halves in float32, with conversions around each operator.",
        stacklevel=4,
    )
    return copy.deepcopy(model).float()
