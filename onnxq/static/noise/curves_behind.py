"""Functions that read a tensor element by element, as it is or along a line: e^x, e^(x / 5).

A range of least squared error gives up the few largest values of a tensor. Behind a function that
grows ever steeper there, just these are most of the result. So what a range loses is asked of the
function, too:

    noise = sum (f(u) - f(u'))^2 / sum (f(u) - mean)^2     u = factor x + offset, u' of the integers

`error_paths` follows errors that are alike for all values, of which nothing can be told by place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Reals
from onnxq.graph.passes.formulas import line_of
from onnxq.graph.walk import value_name
from onnxq.observers import FloatHistogramObserver, Observer
from onnxq.operator import Curve, OpCategory, Rule
from onnxq.operator.nodes import find_input
from onnxq.static.insertion.context import Context
from onnxq.static.noise.probed import responses

_SLACK = 1e-6  # of the ends of a range, for the rounding of a line's numbers


@dataclass(frozen=True, slots=True)
class CurveBehind:
    """A function of factor * x + offset, and the range of that which was seen."""

    curve: Curve
    low: float
    high: float
    factor: float = 1.0
    offset: float = 0.0

    def of_line(self, factor: float, offset: float) -> CurveBehind:
        """The same one, seen from ahead of a line."""
        return CurveBehind(
            self.curve,
            self.low,
            self.high,
            self.factor * factor,
            self.offset + self.factor * offset,
        )

    def noises(self, x: Reals, counts: Reals, rounded: Reals) -> Reals:
        """Noise over signal of the result, for each way to round x; (ways,).

        Arguments that were not met are those of other parts of x, and count for nothing.

        Args:
            x: values, (values,).
            counts: how often each occurs, (values,).
            rounded: what integers make of them, (ways, values).
        """
        slack = _SLACK * max(abs(self.low), abs(self.high))
        argument = self.factor * x + self.offset
        met = (argument >= self.low - slack) & (argument <= self.high + slack)
        moved = np.clip(self.factor * rounded[:, met] + self.offset, self.low, self.high)
        with np.errstate(all="ignore"):
            right, wrong = self.curve.function(argument[met]), self.curve.function(moved)
            squares = np.square(wrong - right)
        good = np.isfinite(right) & np.isfinite(squares).all(axis=0)
        right, weights = right[good], counts[met][good]
        total = float(weights.sum())
        if not total:
            return np.zeros(len(rounded))
        # the mean of a power is signal, that of a logarithm is none: see error_paths
        mean = float(weights @ right) / total if self.curve.exponent is None else 0.0
        signal = float(weights @ np.square(right - mean))
        return squares[:, good] @ weights / signal if signal else np.zeros(len(rounded))


def curves_behind(
    context: Context, observers: Mapping[str, Observer]
) -> dict[str, tuple[CurveBehind, ...]]:
    """Tensor -> the functions that its elements go through; tensors without any are missing.

    Only moves, bounds, and lines of two numbers stand between. A function is there once, however
    many ways lead to it.
    """
    found: dict[str, dict[CurveBehind, None]] = {}
    for node, loop in reversed(context.order):
        if loop is None:
            behind = [each for v in node.outputs if v.name for each in found.get(v.name, {})]
            for value, each in _steps(node, context.rules.find(node), behind, observers):
                found.setdefault(value_name(value), {})[each] = None
    return {name: tuple(behind) for name, behind in found.items()}


def _steps(
    node: ir.Node, rule: Rule | None, behind: list[CurveBehind], observers: Mapping[str, Observer]
) -> Iterator[tuple[ir.Value, CurveBehind]]:
    """(input, CurveBehind seen from it) for the node itself, and for all that lies behind it."""
    for response in responses(node):
        if isinstance(response, Curve):
            value = find_input(node, response.slot)
            seen = None if value is None else observers.get(value_name(value))
            if value is not None and isinstance(seen, FloatHistogramObserver):
                yield value, CurveBehind(response, float(seen.min_val), float(seen.max_val))
    if not behind:
        return
    line = line_of(node)
    if line is not None:
        yield from ((line.x, each.of_line(line.factor, line.offset)) for each in behind)
    elif rule is not None and rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP):
        values = (find_input(node, slot) for slot in rule.activations)
        moved = [v for v in values if v is not None and not v.is_initializer()]
        yield from ((value, each) for value in moved for each in behind)
