"""One torch.export program of a module: the source of its training graph and of its ONNX model.

The program is exported in eval mode. Train mode runs code that no graph has (layers left out at
random, masks drawn with NumPy). Batch norm and dropout are recovered as modules, which obey both
modes; what train mode alone knows of dropout is read from one run (`programs.dropouts`).
"""

import contextlib
import enum
import operator
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import is_concrete_int

from onnxq.errors import ModelError, OnnxqError, UnsupportedError
from onnxq.pytorch.arguments.axes import Axes
from onnxq.pytorch.arguments.batch_axes import batch_axes, length_axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs, bind
from onnxq.pytorch.arguments.flat import flattened, without_cache
from onnxq.pytorch.arguments.forward import copied, eval_mode, first_run
from onnxq.pytorch.exporting.exporter import traceable
from onnxq.pytorch.exporting.quiet import users_line
from onnxq.pytorch.exporting.trace import tracing
from onnxq.pytorch.programs.buffer_updates import BufferUpdate, buffer_updates, left_out
from onnxq.pytorch.programs.dropouts import (
    Dropouts,
    marked_identities,
    restore_rates,
    train_dropouts,
)
from onnxq.pytorch.programs.out_of_place import make_out_of_place
from onnxq.pytorch.programs.own_gradients import FunctionCall, OwnGradients, remove_marks
from onnxq.pytorch.programs.take_apart import take_apart

# --- Regions of a program (torch.no_grad, autocast), as plain operators of its graph.
#
#     with torch.no_grad(): y = conv(x)    y = detach(conv(x))
#     with torch.autocast(...): y = f(x)   y = f(x), in float32
#
# torch.export puts the operators of a region into a graph of its own, where neither names nor
# passes look.

aten = torch.ops.aten

_NO_GRAD = "wrap_with_set_grad_enabled"
_AUTOCAST = "wrap_with_autocast"
_BATCHED = "torch._functorch.predispatch"
"""Module of what torch.vmap and torch.func leave in a program: it runs inside of them alone."""
_DTYPE_CHECK = aten._assert_tensor_metadata.default  # noqa: SLF001  # an operator


def inline_regions(program: ExportedProgram) -> None:
    """Puts the operators of all regions into the program's graph, in place."""
    module = program.graph_module
    if any(getattr(node.target, "__module__", "") == _BATCHED for node in module.graph.nodes):
        raise UnsupportedError(
            "forward calls torch.vmap, or a transform of torch.func, whose operators have no place "
            "in a training graph. Write it with broadcasting, torch.einsum or torch.bmm; "
            "onnxq.export takes it as it is, for quantization without training."
        )
    outputs = set(map(str, program.graph_signature.user_outputs))
    regions = [node for node in module.graph.nodes if _is_region(node)]
    names = set()
    for node in regions:
        with module.graph.inserting_before(node):
            results = _inlined(module, node, module, {})
        for part in list(node.users):
            position: Any = part.args[1]
            _take_place(part, results[position], part.name in outputs)
        bodies = [x for x in node.all_input_nodes if x.op == "get_attr"]
        module.graph.erase_node(node)
        for body in bodies:
            names.add(str(body.target))
            if not body.users:
                module.graph.erase_node(body)
    if any(str(node.target) == _AUTOCAST for node in regions):  # which makes other dtypes
        for check in module.graph.find_nodes(op="call_function", target=_DTYPE_CHECK):
            module.graph.erase_node(check)
    module.graph.lint()
    for name in names - {str(n.target) for n in module.graph.find_nodes(op="get_attr")}:
        module.delete_submodule(name)  # not all unused ones: torch takes those in branches for such
    module.recompile()


def _is_region(node: fx.Node) -> bool:
    return node.op == "call_function" and str(node.target) in (_NO_GRAD, _AUTOCAST)


def _take_place(part: fx.Node, result: fx.Node, is_output: bool) -> None:
    """Lets a result of a region be read in the place of the node that took it out."""
    graph = part.graph
    if is_output:  # the program's signature has its name, and one result may be two outputs
        with graph.inserting_before(part):
            source, result = result, graph.call_function(aten.alias.default, (result,))
        result.meta = {**part.meta, "val": source.meta["val"]}
    part.replace_all_uses_with(result)
    name = part.name
    graph.erase_node(part)
    if is_output:
        result.name = name


def _inlined(
    root: fx.GraphModule, region: fx.Node, owner: nn.Module, outer: dict[fx.Node, Any]
) -> list[fx.Node]:
    """The results of a region, whose operators are written where the graph's cursor is."""
    args: tuple[Any, ...] = region.args
    position = next(i for i, a in enumerate(args) if isinstance(a, fx.Node) and a.op == "get_attr")
    body: Any = operator.attrgetter(args[position].target)(owner)
    given = [outer.get(a, a) for a in args[position + 1 :]]
    inner = [n for n in body.graph.nodes if n.op == "placeholder"]
    values: dict[fx.Node, Any] = dict(zip(inner, given, strict=True))
    for step in body.graph.nodes:
        if _is_region(step):
            values[step] = _inlined(root, step, body, values)
        elif step.target is operator.getitem and isinstance(values.get(step.args[0]), list):
            values[step] = values[step.args[0]][step.args[1]]
        elif step.op == "call_function":
            values[step] = root.graph.node_copy(step, values.__getitem__)
        elif step.op == "get_attr" and not all(map(_is_region, step.users)):
            values[step] = _attribute(root, step, body)
    (end,) = [n for n in body.graph.nodes if n.op == "output"]
    results = end.args[0] if isinstance(end.args[0], tuple | list) else [end.args[0]]
    found = [values[result] for result in results]
    if str(region.target) == _NO_GRAD and region.args[0] is False:
        return [_detached(root.graph, x) for x in found]
    return found


def _attribute(root: fx.GraphModule, step: fx.Node, body: nn.Module) -> fx.Node:
    """A part of the region's body (a branch of torch.cond) as one of the root's."""
    name = f"of_region_{step.name}"
    while hasattr(root, name):
        name += "_"
    setattr(root, name, operator.attrgetter(str(step.target))(body))
    return root.graph.get_attr(name)


def _detached(graph: fx.Graph, x: fx.Node) -> fx.Node:
    if not isinstance(x.meta.get("val"), torch.Tensor):
        return x
    made = graph.call_function(aten.detach.default, (x,))
    made.meta = dict(x.meta)
    return made


_ITS_OWN_LINES = re.compile(r" (?:Caused by: \(|For more information, run)")
"""Where torch's message goes on about torch; the user's line is said behind it."""
_GUARDS = re.compile(r"^ *- (.+?)(?:\. If you're using .*)?$", re.MULTILINE)
"""Lines behind that which name the sizes that torch.export could not leave open."""


@dataclass(frozen=True, slots=True)
class Program:
    """Record of a module in eval mode, as torch.export made it.

    Attributes:
        exported: of the flat form of the module: tensors in, a tuple of tensors out.
        bound: the example inputs, as forward takes them.
        axes: which of their axes are dynamic.
        outputs: what forward returned for them.
        dropouts: what train mode does where eval mode does nothing; the program has its rates.
        notes: what the program could not be made to take.
        functions: calls of torch.autograd.Function, whose operators have another backward.
        updates: what train mode alone writes into buffers.
    """

    exported: ExportedProgram
    bound: BoundInputs
    axes: Axes
    outputs: object
    dropouts: Dropouts
    notes: tuple[str, ...] = ()
    functions: tuple[FunctionCall, ...] = ()
    updates: tuple[BufferUpdate, ...] = ()


class Open(enum.Enum):
    """Axes of inputs that a program leaves open where nobody names them."""

    BATCH = "batch"
    """Batches alone, as `onnxq.export` does: nodes are called as in its model."""

    LENGTHS = "lengths"
    """Lengths of sequences as well."""


def program_of(model: nn.Module, inputs: Inputs, left_open: Open = Open.BATCH) -> Program:
    """The program of a module, of which training graph and ONNX model are made."""
    given = without_cache(model, bind(model, inputs))
    with eval_mode(model), same_buffers(model):
        with same_buffers(model):
            outputs = first_run(model, given)
            try:
                axes = batch_axes(model, given)
            except ModelError:  # forward fixes the number of rows, as `row_notes` says
                axes = Axes({}, {})
        bound = traceable(given, axes)
        dropouts = train_dropouts(model, bound)
        model.eval()
        flat = flattened(model, bound)
        finds_lengths = left_open is Open.LENGTHS and axes.of
        lengths = length_axes(model, bound, axes) if finds_lengths else {}
        with (
            marked_identities(model, bound),
            tracing(flat),
            _explained(model),
            OwnGradients() as own_gradients,
        ):
            exported = _exported(flat, bound, axes, lengths)
        inline_regions(exported)
        updates = _updates(model, bound, exported, dropouts)
    make_out_of_place(exported)
    restore_rates(exported, model, dropouts)
    take_apart(exported)
    functions = remove_marks(exported, own_gradients)
    notes = _fixed_lengths(exported, bound, lengths)
    return Program(exported, bound, axes, outputs, dropouts, notes, functions, updates)


def _exported(
    flat: nn.Module, bound: BoundInputs, axes: Axes, lengths: dict[str, set[int]]
) -> ExportedProgram:
    """The program; lengths that it cannot leave open are fixed."""
    tensors = tuple(bound.tensors.values())
    shapes = tuple(_dims(name, axes, lengths) or None for name in bound.tensors)
    try:
        return torch.export.export(flat, tensors, dynamic_shapes=shapes, strict=False)
    # torch.export raises errors of many kinds, some of them straight from Exception
    except Exception:  # torch.export's: of many kinds
        if not lengths:
            raise
        return _exported(flat, bound, axes, {})


def _updates(
    model: nn.Module, bound: BoundInputs, exported: ExportedProgram, dropouts: Dropouts
) -> tuple[BufferUpdate, ...]:
    """Writes of train mode into buffers; none where torch.export does not take it."""
    buffers = left_out(model, exported, dropouts.buffers)
    if not buffers:
        return ()
    flat = flattened(copied(model).train(), bound)
    try:
        with tracing(flat):
            trained = _exported(flat, bound, Axes({}, {}), {})
    except Exception:  # of many kinds; programs.train_mode says what is not updated then
        return ()
    inline_regions(trained)
    return buffer_updates(exported, trained, buffers)


def _fixed_lengths(
    exported: ExportedProgram, bound: BoundInputs, lengths: dict[str, set[int]]
) -> tuple[str, ...]:
    """A note on lengths that forward takes in other sizes, and the program does not."""
    shapes = {n.name: n.meta["val"].shape for n in exported.graph.nodes if n.op == "placeholder"}
    inputs = dict(zip(bound.tensors, exported.graph_signature.user_inputs, strict=True))
    fixed = [
        f"'{name}' along axis {axis}"
        for name, found in lengths.items()
        for axis in sorted(found)
        if is_concrete_int(shapes[str(inputs[name])][axis])
    ]
    if not fixed:
        return ()
    return (
        f"torch.export fixes the length of {', '.join(fixed)}, though forward takes others: the "
        "prepared model runs the length of the example inputs alone.",
    )


def _dims(name: str, axes: Axes, lengths: dict[str, set[int]]) -> dict[int, Any]:
    """torch.export's sizes of one input."""
    made: dict[int, Any] = dict.fromkeys(lengths.get(name, ()), torch.export.Dim.AUTO)
    for axis, label in axes.of.get(name, {}).items():
        least, largest = axes.ranges.get(label, (None, None))
        made[axis] = torch.export.Dim(label, min=least, max=largest)
    return made


@contextlib.contextmanager
def same_buffers(model: nn.Module) -> Iterator[None]:
    """Buffers outside have the values that they had before: counters count in eval mode, too."""
    held = [
        (m, name, x, x.clone())
        for m in model.modules()
        for name, x in m.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for module, name, x, value in held:
            setattr(module, name, x)
            with torch.no_grad():
                x.copy_(value)


@contextlib.contextmanager
def _explained(model: nn.Module) -> Iterator[None]:
    try:
        yield
    except OnnxqError:  # says itself what to do
        raise
    except Exception as error:  # torch.export's: of many kinds, some straight from Exception
        reason = _ITS_OWN_LINES.split(" ".join(str(error).split()))[0]
        reason = " ".join((reason, *_GUARDS.findall(str(error))))
        said = textwrap.shorten(reason, 400, placeholder=" ...")
        raise UnsupportedError(
            f"{type(model).__name__} cannot be exported by torch.export: {said}{users_line(error)}"
            "\nWhat to do: change what forward does there (torch.where in place of a branch on "
            "values), or mark the quantized region with QuantStub and DeQuantStub and call "
            "prepare_qat without inputs."
        ) from error
