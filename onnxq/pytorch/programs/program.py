"""One torch.export program of a module: the source of its training graph and of its ONNX model.

The program is exported in eval mode. Train mode runs code that no graph has (layers left out at
random, masks drawn with NumPy). Batch norm and dropout are recovered as modules, which obey both
modes; what train mode alone knows of dropout is read from one run (`programs.dropouts`).
"""

from __future__ import annotations

import contextlib
import copy
import enum
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import is_concrete_int

from onnxq.errors import OnnxqError, UnsupportedError
from onnxq.pytorch.arguments.axes import Axes, DynamicAxes, resolved
from onnxq.pytorch.arguments.batch_axes import batch_axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Inputs, bind
from onnxq.pytorch.arguments.cache import without_cache
from onnxq.pytorch.arguments.flat import flattened
from onnxq.pytorch.arguments.forward import first_run
from onnxq.pytorch.arguments.length_axes import length_axes
from onnxq.pytorch.exporting.even_bounds import EvenBounds
from onnxq.pytorch.exporting.exporter import eval_mode, traceable
from onnxq.pytorch.exporting.quiet import quiet_exporter
from onnxq.pytorch.exporting.users_line import users_line
from onnxq.pytorch.exporting.whole_layers import WholeLayers
from onnxq.pytorch.modules.transformers import without_shortcuts
from onnxq.pytorch.programs.buffer_updates import BufferUpdate, buffer_updates, left_out
from onnxq.pytorch.programs.dropouts import (
    Dropouts,
    marked_identities,
    restore_rates,
    train_dropouts,
)
from onnxq.pytorch.programs.out_of_place import make_out_of_place
from onnxq.pytorch.programs.own_gradients import FunctionCall, OwnGradients, remove_marks
from onnxq.pytorch.programs.regions import inline_regions
from onnxq.pytorch.programs.take_apart import take_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram


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


def program_of(
    model: nn.Module,
    inputs: Inputs,
    dynamic_axes: DynamicAxes | None = None,
    left_open: Open = Open.BATCH,
) -> Program:
    """The program of a module, of which training graph and ONNX model are made.

    Args:
        model: float; left as it is.
        inputs: example inputs of forward.
        dynamic_axes: as for `onnxq.export`; None finds those of `left_open`.
        left_open: what to find.

    Raises:
        UnsupportedError: torch.export does not take the module.
        ModelError: forward fails on the example inputs, or in every other batch size.
    """
    given = without_cache(model, bind(model, inputs))
    with eval_mode(model), same_buffers(model):
        with same_buffers(model):
            outputs = first_run(model, given)
            asked = None if dynamic_axes is None else resolved(dynamic_axes, given)
            axes = asked or batch_axes(model, given)
        bound = traceable(given, axes)
        dropouts = train_dropouts(model, bound)
        model.eval()
        flat = flattened(without_shortcuts(model), bound)
        finds_lengths = asked is None and left_open is Open.LENGTHS
        lengths = length_axes(model, bound, axes) if finds_lengths else {}
        with (
            marked_identities(model, bound),
            quiet_exporter(flat),
            WholeLayers(),
            EvenBounds(),
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
    except Exception:
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
    flat = flattened(without_shortcuts(copy.deepcopy(model).train()), bound)
    try:
        with quiet_exporter(flat), WholeLayers(), EvenBounds():
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
    held = [(m, name, x, x.clone()) for m in model.modules() for name, x in _buffers(m)]
    try:
        yield
    finally:
        for module, name, x, value in held:
            setattr(module, name, x)
            with torch.no_grad():
                x.copy_(value)


def _buffers(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return list(module.named_buffers(recurse=False))


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
