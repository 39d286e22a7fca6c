"""Inputs of a node whose errors its outputs have, and how: one node against the graph's order.

Ahead of a function that amplifies them, errors are followed through moves, bounds, sums, means,
powers, products and quotients. Not further than MOST_LAYERS linear layers: a short-time
Fourier transform, a filter bank behind it, and the mean over time that levels its bands.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.operator.contract import Operator
from onnxq.operator.nodes import find_input, is_constant
from onnxq.operator.response import Curve, Factored, Linear, Summed, Weighted
from onnxq.operator.rule import Float, OpCategory, Rule, WeightSlot

MOST_LAYERS = 3
"""Linear layers on one way: a Fourier transform, a filter bank, a mean over time."""


@dataclass(frozen=True, slots=True)
class PropagatedError:
    """An input whose error propagates to the outputs of a node.

    Attributes:
        value: the input, which is no constant.
        through: response of the node to its error; None: a move or a bound, which leave it as it
            is.
        bounds: of the result; None: there are none.
    """

    value: ir.Value
    through: Linear | Curve | Weighted | Factored | Summed | WeightSlot | None
    bounds: tuple[float, float] | None = None

    @property
    def layers(self) -> int:
        """Linear layers, in this node: 1 or 0."""
        return int(isinstance(self.through, (Weighted, WeightSlot)))

    def is_followed(self, layers: int) -> bool:
        """Whether the error is known well enough ahead of so many linear layers.

        Ahead of one, bounds let through a part of which nothing is known.
        """
        if layers and self.bounds is not None:
            return False
        return layers + self.layers <= MOST_LAYERS


def propagated_errors(
    operator: Operator, node: ir.Node, rule: Rule | Float | None
) -> Iterator[PropagatedError]:
    """The inputs whose errors propagate through a node, as far as its operator says.

    Times 0 or over 0, they come out as nothing that is left of the signal could be compared with.
    """
    for response in operator.responses(node):
        match response:
            case Linear(slots=slots, amplification=amplification) if 0 < amplification < math.inf:
                yield from _propagated(node, slots, response)
            case Weighted(slot=slot) | Factored(slot=slot) | Summed(slot=slot):
                yield from _propagated(node, (slot,), response)
            case Curve(slot=slot, exponent=exponent) if exponent is not None:
                yield from _propagated(node, (slot,), response)
    if not isinstance(rule, Rule):
        return
    if rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP):
        yield from _propagated(node, rule.activations, None, rule.clamp)
    if rule.weight is not None and is_constant(node, rule.weight.slot):
        yield from _propagated(node, rule.activations[:1], rule.weight)


def _propagated(
    node: ir.Node,
    slots: tuple[int, ...],
    through: Linear | Curve | Weighted | Factored | Summed | WeightSlot | None,
    bounds: tuple[float, float] | None = None,
) -> Iterator[PropagatedError]:
    for slot in slots:
        value = find_input(node, slot)
        if value is not None and not is_constant(node, slot):
            yield PropagatedError(value, through, bounds)
