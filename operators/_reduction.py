"""Reductions that are a formula of reals; ONNX Runtime has no kernels of theirs for integers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from onnxq.affine import dequantize, quantize
from onnxq.operator import Array, Call, Case, Float, Operator, Reals, Response, Rule, Site, enter
from onnxq.operator.examples import ints, normal
from onnxq.operators._function import lower_around
from onnxq.operators._reduce import axes_of, float_rule
from onnxq.operators._tables import rounded


@dataclass(frozen=True, eq=False)
class Reduction(Operator):
    """A formula along axes, computed in float32 between integers.

    Attributes:
        formula: of float64 reals and axes, ascending, which it keeps as 1; without any axis, it is
            of each element alone.
        answer: to an error of its input.
    """

    op_type: str
    formula: Callable[[Reals, tuple[int, ...]], Reals]
    answer: Response

    def rule(self, node: ir.Node) -> Rule | Float:
        """Computed in float32, along axes that are known."""
        return float_rule(node)

    def responses(self, node: ir.Node) -> tuple[Response, ...]:
        return (self.answer,)

    def cases(self) -> Iterable[Case]:
        x = normal(2, 30, 4)
        yield Case("last", (x, ints(-1)), (1,))
        yield Case("two, dropped", (x, ints(0, 1)), (1,), {"keepdims": 0})
        yield Case("all axes", (x,))
        yield Case("attribute of opset 13", (x,), (), {"axes": [1]}, opset=13)
        yield Case("one summand", (x[..., :1], ints(2)), (1,))
        yield Case("empty batch", (x[:0], ints(1)), (1,))

    def lower(self, site: Site) -> Sequence[ir.Value]:
        return lower_around(site)

    def kernel(self, call: Call) -> tuple[Array, ...]:
        x = dequantize(call.integers(0), call.qparams_in(0))
        axes = tuple(axes_of(call, x.ndim, call.optional_vector(1)))
        with call.shape_errors():  # nothing to reduce
            y = rounded(lambda reals: self.formula(reals, axes), x)
        if not call.integer("keepdims", 1):
            y = y.squeeze(axes)
        return (quantize(np.asarray(y), call.qparams_out()),)


Reducing = TypeVar("Reducing", bound="Callable[[Reals, tuple[int, ...]], Reals]")


def reduction(op_type: str, *, answer: Response) -> Callable[[Reducing], Reducing]:
    """Makes the formula known as an operator; arguments as `Reduction` has them."""

    def known(formula: Reducing) -> Reducing:
        enter(Reduction(op_type, formula, answer))
        return formula

    return known
