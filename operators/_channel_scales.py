"""Scales of results as scales of inputs: which axes take one, and which nodes pass it on."""

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxq.operator import Reals
from onnxq.operator.nodes import find_input, shape


def varies(scale: Reals) -> tuple[int, ...]:
    """Axes along which the scale is not one number."""
    return tuple(axis for axis, size in enumerate(scale.shape) if size > 1)


def only_along(scale: Reals, axis: int) -> bool:
    """Whether the scale varies along no other axis."""
    return set(varies(scale)) <= {axis % scale.ndim} if scale.ndim else True


def per_channel_alone(scale: Reals) -> bool:
    """Whether each image and channel has one scale, so that windows of pixels keep it."""
    return all(axis < 2 for axis in varies(scale))


def fitted(scale: Reals, rank: int) -> Reals | None:
    """The scale for an operand of that rank; broadcasts to the result's; None: too few axes."""
    extra = scale.ndim - rank
    if extra <= 0:
        return scale.reshape((1,) * -extra + scale.shape)
    if any(size > 1 for size in scale.shape[:extra]):
        return None
    return scale.reshape(scale.shape[extra:])


def on_operands(node: ir.Node, slots: tuple[int, ...], scale: Reals) -> Mapping[int, Reals] | None:
    """The scale on each of these operands of an element-wise node; None: one cannot take it.

    An activation that is broadcast along an axis where the scale varies cannot take it.
    """
    found = {}
    for slot in slots:
        sizes = shape(node, slot)
        own = None if sizes is None else fitted(scale, len(sizes))
        value = find_input(node, slot)
        if own is None or sizes is None or value is None:
            return None
        broadcast = any(size > 1 and sizes[a] != size for a, size in enumerate(own.shape))
        if broadcast and value.const_value is None:
            return None
        found[slot] = own
    return found


def reshaped(node: ir.Node, scale: Reals) -> Reals | None:
    """The scale of a Reshape's input, whose trailing sizes are split or merged; None: not known.

    From the first axis on along which the scale varies, the result has as many elements as the
    input from some axis on: the rows that these are stand in both in the same order.
    """
    given, made = shape(node, 0), node.outputs[0].shape
    axes = varies(scale)
    if given is None or made is None:
        return None
    if not axes:
        return scale.reshape((1,) * len(given))
    tail = [size if isinstance(size, int) else None for size in made.dims[axes[0] :]]
    if None in tail:
        return None
    count = math.prod(size for size in tail if size is not None)
    for start in range(len(given) - 1, -1, -1):
        sizes = given[start:]
        if None in sizes:
            return None
        if math.prod(size for size in sizes if size is not None) == count:
            wide = scale.reshape(scale.shape[axes[0] :])
            whole = np.broadcast_to(wide, tuple(s for s in tail if s is not None))
            parts = whole.reshape(tuple(s for s in sizes if s is not None))
            return _narrow(parts.reshape((1,) * start + parts.shape))
    return None


def _narrow(scale: Reals) -> Reals:
    """The same scale, of size 1 along axes where it does not vary."""
    for axis in range(scale.ndim):
        first = scale.take([0], axis)
        if (scale == first).all():
            scale = first
    return scale
