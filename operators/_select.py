"""Operators that move or select integers: the result has the qparams of what it is made of.

Scales are positive, so that integers are ordered as the numbers are.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from onnxq.operator import Array, Call, Case, Float, OpCategory, Operator, Reals, Rule, Site, enter
from onnxq.operator.examples import normal
from onnxq.operator.nodes import infinite_operand
from onnxq.qparams import IntArray

ScaleBefore = Callable[[ir.Node, Reals], Reals | None]
"""Scale of the first input, by node and scale of the result."""


@dataclass(frozen=True, eq=False)
class Selection(Operator):
    """An operator that copies integers of its first input; others are sizes, axes or places.

    Attributes:
        formula: of the call and the integers of the first input; gives the result. NumPy's refusals
            become ShapeError.
        examples: small ones, the nasty ones included.
        lowered: whether ONNX Runtime does not fuse it between DequantizeLinear and QuantizeLinear.
        outputs: slots of results that are integers.
        before: scale of the first input for this scale of the result, None where there is
            none; None: of no scale.
    """

    op_type: str
    formula: Callable[[Call, IntArray], Array]
    examples: Callable[[], Iterable[Case]]
    domain: str = ""
    lowered: bool = False
    outputs: tuple[int, ...] = (0,)
    selects: bool = False
    before: ScaleBefore | None = None

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies integers, so the output has the input's qparams."""
        return Rule(
            OpCategory.MOVEMENT,
            outputs=self.outputs,
            shares_qparams=True,
            lowered=self.lowered,
            selects=self.selects,
        )

    def scaled(self, node: ir.Node, scale: Reals) -> tuple[Mapping[int, Reals], ...]:
        """Scaling the result scales input 0, along the axes as they were ahead of the node."""
        before = None if self.before is None else self.before(node, scale)
        return () if before is None else ({0: before},)

    def cases(self) -> Iterable[Case]:
        return self.examples()

    def lower(self, site: Site) -> Sequence[ir.Value]:
        return site.on_integers()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        x = call.integers(0)
        call.shared()
        with call.shape_errors():
            return (self.formula(call, x),)


Selecting = TypeVar("Selecting", bound="Callable[[Call, IntArray], Array]")


def selection(
    op_type: str,
    *,
    cases: Callable[[], Iterable[Case]],
    domain: str = "",  # of another package's operator
    lowered: bool = False,
    outputs: tuple[int, ...] = (0,),
    selects: bool = False,
    before: ScaleBefore | None = None,
) -> Callable[[Selecting], Selecting]:
    """Makes the formula known as an operator; arguments as `Selection` has them."""

    def known(formula: Selecting) -> Selecting:
        enter(Selection(op_type, formula, cases, domain, lowered, outputs, selects, before))
        return formula

    return known


@dataclass(frozen=True, eq=False)
class Extremum(Operator):
    """The operand that is furthest in one direction, element by element, with broadcasting."""

    op_type: str
    formula: Callable[[IntArray, IntArray], IntArray]

    def rule(self, node: ir.Node) -> Rule | Float:
        """Selects integers, so operands and result have the same qparams."""
        slots = tuple(range(len(node.inputs)))
        return infinite_operand(node, slots) or Rule(
            OpCategory.MOVEMENT, activations=slots, shares_qparams=True, lowered=True, selects=True
        )

    def cases(self) -> Iterable[Case]:
        x = normal(2, 3, 4)
        yield Case("two", (x, normal(2, 3, 4, seed=1)))
        yield Case("constant", (x, np.array(0.25, np.float32)), (1,))
        yield Case("three", (x, normal(3, 1, seed=1), normal(4, seed=2)))
        yield Case("one", (x,))
        yield Case("empty batch", (normal(0, 3), normal(3, seed=1)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        return site.on_integers()

    def kernel(self, call: Call) -> tuple[Array, ...]:
        slots = range(len(call.inputs))
        if not slots:
            raise call.shape_error("it has no inputs; wanted at least one.")
        operands = [call.integers(slot) for slot in slots]
        call.shared(slots)
        with call.shape_errors():
            return (np.asarray(functools.reduce(self.formula, operands)),)


Comparing = TypeVar("Comparing", bound="Callable[[IntArray, IntArray], IntArray]")


def extremum(op_type: str) -> Callable[[Comparing], Comparing]:
    """Makes the formula of two operands known as an operator of any number of them."""

    def known(formula: Comparing) -> Comparing:
        enter(Extremum(op_type, formula))
        return formula

    return known
