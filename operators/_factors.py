"""Factors of results as factors of inputs: which axes carry one, and through what it goes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxq.operator import Reals
from onnxq.operator.nodes import find_input, shape


def varies(factor: Reals) -> tuple[int, ...]:
    """Axes along which the factor is not one number."""
    return tuple(axis for axis, size in enumerate(factor.shape) if size > 1)


def only_along(factor: Reals, axis: int) -> bool:
    """Whether the factor varies along no other axis."""
    return set(varies(factor)) <= {axis % factor.ndim} if factor.ndim else True


def per_channel_alone(factor: Reals) -> bool:
    """Whether each image and channel has one factor, so that windows of pixels keep it."""
    return all(axis < 2 for axis in varies(factor))


def fitted(factor: Reals, rank: int) -> Reals | None:
    """The factor for an operand of that rank, which broadcasts to the result's; None: too few axes.

    Args:
        factor: of the result.
        rank: of the operand; a constant of fewer axes grows as many as the factor needs.
    """
    extra = factor.ndim - rank
    if extra <= 0:
        return factor.reshape((1,) * -extra + factor.shape)
    if any(size > 1 for size in factor.shape[:extra]):
        return None
    return factor.reshape(factor.shape[extra:])


def on_operands(node: ir.Node, slots: tuple[int, ...], factor: Reals) -> Mapping[int, Reals] | None:
    """The factor on each of these operands of an element-wise node; None: it fits one of them not.

    An activation that is broadcast along an axis where the factor varies cannot carry it.
    """
    found = {}
    for slot in slots:
        sizes = shape(node, slot)
        own = None if sizes is None else fitted(factor, len(sizes))
        value = find_input(node, slot)
        if own is None or sizes is None or value is None:
            return None
        broadcast = any(size > 1 and sizes[a] != size for a, size in enumerate(own.shape))
        if broadcast and value.const_value is None:
            return None
        found[slot] = own
    return found


def reshaped(node: ir.Node, factor: Reals) -> Reals | None:
    """The factor of a Reshape's input, whose trailing sizes are split or merged; None: not known.

    From the first axis on along which the factor varies, the result has as many elements as the
    input from some axis on: the rows that these are stand in both in the same order.
    """
    given, made = shape(node, 0), _result_shape(node)
    axes = varies(factor)
    if given is None or made is None:
        return None
    if not axes:
        return factor.reshape((1,) * len(given))
    tail = made[axes[0] :]
    if None in tail:
        return None
    count = math.prod(size for size in tail if size is not None)
    for start in range(len(given) - 1, -1, -1):
        sizes = given[start:]
        if None in sizes:
            return None
        if math.prod(size for size in sizes if size is not None) == count:
            wide = factor.reshape(factor.shape[axes[0] :])
            whole = np.broadcast_to(wide, tuple(s for s in tail if s is not None))
            parts = whole.reshape(tuple(s for s in sizes if s is not None))
            return _narrow(parts.reshape((1,) * start + parts.shape))
    return None


def _narrow(factor: Reals) -> Reals:
    """The same factor, of size 1 along axes where it does not vary."""
    for axis in range(factor.ndim):
        first = factor.take([0], axis)
        if (factor == first).all():
            factor = first
    return factor


def _result_shape(node: ir.Node) -> tuple[int | None, ...] | None:
    result = node.outputs[0].shape
    if result is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in result)
