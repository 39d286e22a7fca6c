"""Finds the batch axis of each example input, where the caller does not say it.

Axis 0 of every input is tried first. Where forward does not take it in other sizes, or where it is
one of several that it could be, axes of equal length are tried: [sequence, batch] and a state of
[layers, batch, features] have one length in common. An axis is the batch where rows do not depend
on each other,

    forward(rows x_1 ... x_n)[i] = forward(row x_i alone)      for the first and the last i

so that a sequence, and a state of several layers, are none. What is found holds for the module; the
exported model is then run with other batch sizes, as ever. Where batch norm takes its statistics
from the rows, they do depend on each other, and one alone may be refused: two are then a batch.
"""

import contextlib
import itertools

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import ModelError, QConfigError, ShapeError
from onnxq.pytorch.arguments.axes import BATCH, Axes
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.forward import FORWARD_RAISES, alike, compute, flatten

MAX_TRIALS = 64  # of forward's runs with one row and with all; real models need one to three
MAX_CHOICES = 4096
ROWS = 3  # the least that tell a repeated row from another one
_TOLERANCE = 1e-4  # of the largest value: float sums in another order
_NOISE = 0.1  # of a tensor's own spread, or of 1: rows that are alike, as zero states are, differ
_SEED = 0
_REFUSED = (*FORWARD_RAISES, ShapeError)  # a prepared model's guard raises the last

Assignment = dict[str, int]


def batch_axes(module: nn.Module, bound: BoundInputs) -> Axes:
    """The axis of each input that is the batch; inputs without one are left out."""
    for name, x in bound.tensors.items():
        if x.ndim and not x.numel():
            empty = x.shape.index(0)
            raise QConfigError(
                f"example input '{name}' is empty along axis {empty}; give one row or more."
            )
    first = {name: 0 for name, x in bound.tensors.items() if x.ndim}
    if not first:
        return Axes({}, {})
    sizes = {bound.tensors[name].shape[0] for name in first}
    is_alike = len(sizes - {1}) <= 1  # offsets into rows are no batch of as many
    is_likely = is_alike and (bound.is_flat or (len(sizes) == 1 and sizes != {1}))
    if is_likely and _failure(module, bound, first) is None:
        return _as_axes(first)
    for validation in _assignments(bound)[:MAX_TRIALS]:
        if _is_batch(module, bound, validation):
            return _as_axes(validation)
    norms = (part for part in module.modules() if isinstance(part, _BatchNorm))
    averages_rows = any(norm.running_mean is None for norm in norms)  # and may refuse a single one
    if averages_rows and _failure(module, bound, first, least=2) is None:
        return _as_axes(first)
    raise ModelError(_not_found(module, bound))


def _as_axes(found: Assignment) -> Axes:
    return Axes({name: {axis: BATCH} for name, axis in found.items()}, {})


def _failure(
    module: nn.Module, bound: BoundInputs, axes: Assignment, least: int = 1
) -> Exception | None:
    """Error that forward raises for the least number of rows, or for one row more than given."""
    named = {name: (axis,) for name, axis in axes.items()}
    rows = max(bound.tensors[name].shape[axis] for name, axis in axes.items())
    try:
        for size in (least, rows + 1):
            compute(module, bound.resized(named, size))
    except _REFUSED as error:
        return error
    return None


def _assignments(bound: BoundInputs) -> list[Assignment]:
    """Axes of equal length: first where most inputs have one, the first input before others."""
    shapes = {name: tuple(x.shape) for name, x in bound.tensors.items()}
    found: list[Assignment] = []
    for length in dict.fromkeys(n for shape in shapes.values() for n in shape):
        names = [name for name, shape in shapes.items() if length in shape]
        choices = [
            [*(axis for axis, n in enumerate(shapes[name]) if n == length), None] for name in names
        ]
        for choice in itertools.islice(itertools.product(*choices), MAX_CHOICES):
            pairs = zip(names, choice, strict=True)
            found.append({name: axis for name, axis in pairs if axis is not None})
    main = next(name for name, shape in shapes.items() if shape)
    return sorted(filter(None, found), key=lambda axes: (-len(axes), main not in axes))


def _is_batch(module: nn.Module, bound: BoundInputs, axes: Assignment) -> bool:
    """Whether rows along these axes are computed one by one."""
    rows = max(ROWS, 1 + max(bound.tensors[name].shape[axis] for name, axis in axes.items()))
    whole = _different(bound, axes, rows)
    try:
        results = flatten(compute(module, whole))
        for row in (0, rows - 1):
            alone = whole.holding(
                {name: whole.tensors[name].narrow(axis, row, 1) for name, axis in axes.items()}
            )
            single = flatten(compute(module, alone))
            if len(single) != len(results):
                return False
            pairs = zip(results, single, strict=True)
            if not all(_is_row(one, many, row, rows) for many, one in pairs):
                return False
    except _REFUSED:
        return False
    return True


def _different(bound: BoundInputs, axes: Assignment, rows: int) -> BoundInputs:
    """So many rows, no two of them alike if that can be: floats with noise, integers shifted."""
    generator = torch.Generator().manual_seed(_SEED)
    sized = bound.resized({name: (axis,) for name, axis in axes.items()}, rows)
    tensors = {}
    for name, axis in axes.items():
        x = sized.tensors[name]
        if x.is_floating_point():
            spread = float(x.float().std(correction=0)) or 1.0
            noise = torch.randn(x.shape, generator=generator) * _NOISE * spread
            tensors[name] = x + noise.to(x)
        elif x.ndim > 1 and bound.tensors[name].shape[axis] == 1:
            along = (axis + 1) % x.ndim
            each = [x.select(axis, i).unsqueeze(axis).roll(i, along) for i in range(rows)]
            tensors[name] = torch.cat(each, axis)
    return sized.holding(tensors)


def _is_row(one: torch.Tensor, many: torch.Tensor, row: int, rows: int) -> bool:
    """Whether a result of one row is that row of the result of all."""
    if one.ndim != many.ndim:
        return False
    longer = [a for a in range(one.ndim) if one.shape[a] != many.shape[a]]
    if not longer:
        return alike(one, many, _TOLERANCE)
    (axis, *others) = longer
    length = one.shape[axis]
    if others or many.shape[axis] != length * rows:
        return False
    if alike(one, many.narrow(axis, row * length, length), _TOLERANCE):
        return True
    every = torch.arange(row, length * rows, rows, device=many.device)
    return alike(
        one, many.index_select(axis, every), _TOLERANCE
    )  # the batch inside of a flattened axis


def _not_found(module: nn.Module, bound: BoundInputs) -> str:
    axes = {name: (0,) for name, x in bound.tensors.items() if x.ndim}
    rows = 1 + max(bound.tensors[name].shape[0] for name in axes)
    error = _failure(module, bound, dict.fromkeys(axes, 0))
    said = f" ({' '.join(str(error).split())[:300]})" if error is not None else ""
    entries = ", ".join(f"'{name}': {{1: 'batch'}}" for name in axes)
    return (
        f"{type(module).__name__} takes its example inputs {bound}, but not with another number of "
        f"rows: axis 0 of each cannot be 1 or {rows} long{said}, and no other axes of equal length "
        "have rows that are computed one by one. Say which axes are the batch, as in "
        f"dynamic_axes={{{entries}}}; {{}} fixes every shape."
    )


# --- Finds axes of example inputs that forward takes in other lengths: tokens, steps, sound.
#
# Sizes that occur along several axes are one length: those of ids and of their mask. What is one is
# tried: forward runs with one more of them, or with one less where a table of positions ends.

LARGEST_RANK = 3  # (batch, length, features); what has more are images, whose size stays
_LEAST = 2  # of an example; torch.export fixes a length of 1

Group = dict[str, tuple[int, ...]]


def length_axes(module: nn.Module, bound: BoundInputs, batch: Axes) -> dict[str, set[int]]:
    """Axes of each input that are lengths; inputs without one are left out."""
    found: dict[str, set[int]] = {}
    for group in _groups(bound, batch):
        first = {name: axes[:1] for name, axes in group.items()}
        choices = [group] if group == first else [group, first]
        taken = next((g for g in choices if _is_length(module, bound, g)), {})
        for name, axes in taken.items():
            found.setdefault(name, set()).update(axes)
    return found


def _groups(bound: BoundInputs, batch: Axes) -> list[Group]:
    """Axes of equal length, by input."""
    groups: dict[int, Group] = {}
    for name, x in bound.tensors.items():
        for axis, size in enumerate(x.shape):
            is_open = axis in batch.of.get(name, {})
            if x.ndim <= LARGEST_RANK and size >= _LEAST and not is_open:
                group = groups.setdefault(size, {})
                group[name] = (*group.get(name, ()), axis)
    return list(groups.values())


def _is_length(module: nn.Module, bound: BoundInputs, group: Group) -> bool:
    name, axes = next(iter(group.items()))
    size = bound.tensors[name].shape[axes[0]]
    for other in (size + 1, size - 1):
        with contextlib.suppress(*FORWARD_RAISES):
            compute(module, bound.resized(group, other))
            return True
    return False
