"""Normalization by statistics of the data, which ONNX Runtime computes in float between Q/DQ."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.nodes import call_of
from onnxq.operators._channel_scales import only_along
from onnxq.operators._function import Decorated, Formula, around_kernel, lower_around

EPSILON = 1e-5  # of the ONNX schemas


@dataclass(frozen=True, eq=False)
class Normalization(Formula):
    """A formula of X and of parameters that stay float; the operands behind it are optional.

    Attributes:
        averages: what mean and variance are taken over; None: errors are not followed.
        rows: whether the parameters have the sizes of the trailing axes.
    """

    averages: Callable[[op.NodeCall], op.Normalizing] | None = None
    rows: bool = False

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """X alone is an activation; the result is observed."""
        if len(node.outputs) > 1:
            return op.Float.because("its mean and deviation are read too")
        return op.Rule(op.OpCategory.ELEMENTWISE, precision=op.Precision.FLOAT_BETWEEN_QDQ)

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """The averages that X is divided by."""
        return () if self.averages is None else (self.averages(call_of(node)),)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling elements of a row scales the weight and the bias of these elements."""
        if not self.rows or not only_along(scale, -1):
            return ()
        return ({slot: scale.reshape(-1) for slot in range(1, len(node.inputs))},)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return lower_around(site)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        given = list(call.inputs)
        while given and given[-1] is None:
            given.pop()
        return (around_kernel(replace(call, inputs=given), self.with_attributes(call)),)


def normalization(
    op_type: str,
    *,
    cases: Callable[[], Iterable[op.Case]],
    averages: Callable[[op.NodeCall], op.Normalizing] | None = None,
    rows: bool = False,
) -> Callable[[Decorated], Decorated]:
    """Makes the formula known as an operator; arguments as `Normalization` has them."""

    def known(formula: Decorated) -> Decorated:
        op.enter(Normalization(op_type, formula, cases, averages=averages, rows=rows))
        return formula

    return known


def averages_from_axis(call: op.NodeCall) -> op.Normalizing:
    """Means over the axes from the attribute `axis` on; the last one has the channels."""
    return op.Normalizing(call.integer("axis", -1), -1, epsilon=call.real("epsilon", EPSILON))


def normalized(x: op.Reals, axes: tuple[int, ...], epsilon: float) -> op.Reals:
    """(x - mean) / sqrt(variance + epsilon), both over the axes; shape of x."""
    if not x.size:
        return x
    centred = x - x.mean(axes, keepdims=True)
    return root_mean_square_normalized(centred, axes, epsilon)


def root_mean_square_normalized(x: op.Reals, axes: tuple[int, ...], epsilon: float) -> op.Reals:
    """X / sqrt(mean(x^2) + epsilon) over the axes; shape of x."""
    if not x.size:
        return x
    return np.asarray(x / np.sqrt(np.square(x).mean(axes, keepdims=True) + epsilon))


def axes_from(axis: int, rank: int) -> tuple[int, ...]:
    """The axes from that one on, counted from the front."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside a tensor of rank {rank}.")
    return tuple(range(axis % rank, rank))


def per_channel(values: op.Reals, rank: int) -> op.Reals:
    """(channels,) as (channels, 1, ...): broadcasts along axis 1 of a tensor of that rank."""
    return values.reshape(-1, *[1] * (rank - 2))
