"""Linear layers that a logarithm, high root or divisor reads: a Fourier transform, a filter bank.

    x -> Conv or MatMul -> squares, sums, roots, moves, bounds -> MatMul -> Log, ^(1/3), 1 / x

These take quiet parts for as much as loud ones, and what integers lose is a share of the loud ones.
How far they lie apart, only samples tell: with nothing known, such layers stay in float. With
samples, onnxq.static.noise.error_paths predicts what is left. A square root leaves enough: of the
magnitudes of a spectrum 37.7 of 38.6 dB, where a cube root leaves 33.5 of 38.3, and a quotient by a
local mean 19.9 of 39.0.

Two kinds of divisor are not small where it is quiet: a reduction, which is the loudness of all that
it divides (a norm), and a sum with a number that is more than a guard against 0 (1 + |x|).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import node_name, walk
from onnxq.operator import Curve, Linear, Operator
from onnxq.operator.nodes import find_input
from onnxq.operator.propagated_errors import PropagatedError, propagated_errors

LOGARITHM = "Log"
REDUCTION = "Reduce"  # ONNX's names of all of them begin so
SQUARE_ROOT = 0.5
GUARD = 1e-2
"""Largest summand of a divisor that is there against zeros: epsilons are 1e-3 or less."""


@dataclass(frozen=True, slots=True)
class _Way:
    """Way from a value to an amplifying node."""

    layers: int
    divides: bool
    amplifying: str


def ahead_of_amplifying(model: ir.Model) -> dict[ir.Node, str]:
    """Linear layer -> the amplifying node that reads sums, powers or moves of it, in words.

    One sweep against the graph's order, by the way with the fewest layers; ways to divisors apart
    from others, as they may end on the way. Nodes of loops are not looked at.
    """
    found: dict[ir.Node, str] = {}
    read: dict[tuple[ir.Value, bool], _Way] = {}
    for node, loop in reversed(list(walk(model.graph))):
        operator = catalog.find(node.op_type, node.domain)
        if loop is not None or operator is None:
            continue
        behind = [read[key] for v in node.outputs for key in ((v, False), (v, True)) if key in read]
        ahead = list(_amplifying(node, operator))
        for way in behind:
            for step in propagated_errors(operator, node, operator.rule(node)):
                if not step.is_followed(way.layers) or (way.divides and _is_loud(node, step)):
                    continue
                if step.layers:
                    found.setdefault(node, way.amplifying)
                ahead.append((step.value, replace(way, layers=way.layers + step.layers)))
        for value, way in ahead:
            key = value, way.divides
            read[key] = min(way, read.get(key, way), key=attrgetter("layers"))
    return found


def _amplifying(node: ir.Node, operator: Operator) -> Iterator[tuple[ir.Value, _Way]]:
    """The input of an amplifying node, no linear layer on the way; nothing for other nodes."""
    for response in operator.responses(node):
        if not isinstance(response, Curve):
            continue
        exponent, value = response.exponent, find_input(node, response.slot)
        is_high_root = exponent is not None and exponent < SQUARE_ROOT
        is_amplifying = node.op_type == LOGARITHM or is_high_root
        if is_amplifying and value is not None and not value.is_initializer():
            name = f"{node.op_type} '{node_name(node)}'"
            yield value, _Way(0, exponent is not None and exponent < 0, name)


def _is_loud(node: ir.Node, step: PropagatedError) -> bool:
    """Whether a divisor that the node gives stays large where its input is quiet."""
    if node.op_type.startswith(REDUCTION):
        return True
    return isinstance(step.through, Linear) and abs(step.through.offset or 0.0) > GUARD
