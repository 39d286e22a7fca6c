"""Operators that are a formula of reals, with no kernel for integers in ONNX Runtime.

A function of one tensor, element by element, is written in one of three forms, by what it costs:

    written    an operator that has a kernel for integers (QLinearLeakyRelu), where there is one
    table      a table of all 256 integers, that GatherElements reads: TABLE_NS per element
    around     DequantizeLinear, the float operator, QuantizeLinear: the operator's own ns_around

A table is exact: the function in float64, rounded once. Around float, ONNX Runtime's result is
within one LSB of that.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize, quantize
from onnxq.operator.examples import normal
from onnxq.operator.nodes import call_of
from onnxq.operators import _tables
from onnxq.qparams import IntArray

TABLE_NS = 0.69
"""A table, measured in an int8 network, ns per element (benchmarks/elementwise.py)."""

AMPLIFYING = 4.0
"""Slope from which on a function is followed value by value: those of activations stay below 2."""

MOST_TURNS = 2
"""Changes of direction of an activation function, at most; those of a sine are without number."""

SIGNED_UNIT = (-1.0, 128 / 127)
"""For results in [-1, 1]: 8 bits get the scale 1/127, so that -1, 0 and 1 are integers."""


@dataclass(frozen=True, eq=False)
class Formula(op.Operator):
    """An operator whose result is a formula of reals.

    Attributes:
        formula: of float64 arrays. Its keyword-only parameters are the node's attributes, with the
            defaults of the ONNX schema; floats are rounded to float32, as they are in the model.
    """

    op_type: str
    formula: Callable[..., op.Reals]
    examples: Callable[[], Iterable[op.Case]]
    domain: str = ""

    def cases(self) -> Iterable[op.Case]:
        return self.examples()

    def with_attributes(self, call: op.NodeCall) -> Callable[..., op.Reals]:
        """The formula of the operands alone."""
        parameters = inspect.signature(self.formula).parameters.values()
        given = {
            p.name: _read(call, p.name, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY
        }
        return functools.partial(self.formula, **given)


def _read(call: op.NodeCall, name: str, default: float | str) -> float | int | str:
    if isinstance(default, str):
        return call.text(name, default)
    if isinstance(default, int):
        return call.integer(name, default)
    return float(np.float32(call.real(name, default)))


@dataclass(frozen=True, eq=False)
class Function(Formula):
    """A function of one tensor, element by element.

    Attributes:
        ns_around: measured in an int8 network, ns per element: DequantizeLinear, the operator and
            QuantizeLinear; infinity: not measured.
        variants: attributes of one example more each.
        written: writes 8-bit integers in an operator that has a kernel for them; None: there is
            none.
        exponent: p where it is x^p; else None.
        defined: between which numbers it has a value. A level is a multiple
            of the scale, so that 1, the largest number that has an arcsine, may become 1.004. A
            level beyond a bound lies within half an LSB of it, and has the value there.
    """

    ns_around: float = math.inf
    output_range: tuple[float, float] | None = None
    variants: Sequence[Mapping[str, float | str]] = ()
    written: Callable[[op.Site], Sequence[ir.Value]] | None = None
    exponent: float | None = None
    defined: tuple[float, float] = (-math.inf, math.inf)

    @property
    def lowered(self) -> bool:
        """Whether `written` or a table computes it: unless the float operator costs less."""
        return self.written is not None or self.ns_around > TABLE_NS

    @property
    def saved_on_integers(self) -> float:
        """Time per element that a table saves over conversions around float; 0 with a kernel."""
        is_table = self.written is None and math.isfinite(self.ns_around)
        return max(self.ns_around - TABLE_NS, 0.0) if is_table else 0.0

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise; the result is observed, unless it has a range whatever the data."""
        precision = op.Precision.INT8 if self.lowered else op.Precision.FLOAT_BETWEEN_QDQ
        return op.Rule(
            op.OpCategory.ELEMENTWISE,
            output_range=self.output_range,
            precision=precision,
            lowered=self.lowered,
        )

    def gives_positive(self, node: ir.Node) -> bool:
        """Whether f(x) + f(-x) is above 0, as of activations: what it reads may be centred."""
        x = np.linspace(0.125, 8.0, 64)
        curve = self.with_attributes(call_of(node))
        with np.errstate(all="ignore"):
            return bool((curve(x) + curve(-x) > 0).all())

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """A Curve where it amplifies somewhere, or turns again and again; else see below.

        An activation function lets a part of an error through that depends on where its input is;
        one that only changes signs the error itself. A sine has slopes up to 1, but a bounded
        result: of an input in the hundreds, whose step is a radian, nothing is left.
        """
        curve = self._on_integers(call_of(node))
        slopes = _slopes(curve, self.defined)
        if slopes.max(initial=0.0) > AMPLIFYING or _turns(curve) > MOST_TURNS:
            return (op.Curve(0, curve, self.exponent),)
        return (op.Linear((0,), 1.0),) if np.all(slopes == 1) else ()

    def cases(self) -> Iterable[op.Case]:
        """The examples, and one with each of the variants."""
        yield from self.examples()
        for attributes in self.variants:
            name = ", ".join(f"{key} {value}" for key, value in attributes.items())
            yield op.Case(name, (normal(2, 3, 4),), (), attributes)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """The integer form; wide integers go around float."""
        if not self.lowered or not _tables.is_tabulable(site.plan):
            return lower_around(site, self.defined)
        if self.written is not None:
            return self.written(site)
        return lower_function(site, self._on_integers(call_of(site.node)))

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return (table_kernel(call, self._on_integers(call)),)

    def _on_integers(self, call: op.NodeCall) -> Callable[[op.Reals], op.Reals]:
        """The function of real values; beyond a bound of `defined`, its value there."""
        function = self.with_attributes(call)
        return lambda x: function(np.clip(x, *self.defined))


def _slopes(function: Callable[[op.Reals], op.Reals], defined: tuple[float, float]) -> op.Reals:
    """|f(e + 2d) - f(e + d)| / |d| over 12 decades of d of both signs, where it is finite.

    e is 0, and each finite bound of `defined`.
    """
    distances = np.ldexp(1.0, np.arange(-20, 20))
    d: op.Reals = np.concatenate([-distances, distances])
    points = [0.0, *(bound for bound in defined if math.isfinite(bound))]
    with np.errstate(all="ignore"):
        slopes = [np.abs((function(e + 2.0 * d) - function(e + d)) / d) for e in points]
    found = np.concatenate(slopes)
    return np.asarray(found[np.isfinite(found)])


def _turns(function: Callable[[op.Reals], op.Reals]) -> int:
    """How often the function changes its direction between -64 and 64, where it is finite."""
    with np.errstate(all="ignore"):
        values = function(np.linspace(-64, 64, 2049))
    changes = np.diff(values[np.isfinite(values)])
    level = np.abs(changes) <= 1e-6 * np.abs(changes).max(initial=0.0)  # rounding, where it is flat
    return int(np.count_nonzero(np.diff(np.sign(changes[~level]))))


def anywhere(widest: float = 100.0) -> Iterable[op.Case]:
    """Examples of a function that is defined everywhere, up to some times `widest`."""
    yield op.Case("plain", (normal(2, 3, 4),))
    yield op.Case("wide", (np.float32(widest) * normal(2, 3, 4),))
    yield op.Case("rank 0", (normal(),))
    yield op.Case("empty batch", (normal(0, 3),))


def within(low: float, high: float) -> Iterable[op.Case]:
    """Examples of a function that is defined between two numbers, a little way inside of them."""
    share = np.linspace(0.05, 0.95, 24, dtype=np.float32).reshape(2, 3, 4)
    x = np.float32(low) + share * np.float32(high - low)
    yield op.Case("plain", (x,))
    yield op.Case("rank 0", (x[0, 0, 0, ...],))
    yield op.Case("empty batch", (x[:0],))


def positive() -> Iterable[op.Case]:
    """Examples of a function of numbers above 0."""
    x = np.abs(normal(2, 3, 4)) + np.float32(0.5)
    yield op.Case("plain", (x,))
    yield op.Case("small and large", (x**9,))
    yield op.Case("rank 0", (np.array(0.7, np.float32),))
    yield op.Case("empty batch", (x[:0],))


Decorated = TypeVar("Decorated", bound="Callable[..., op.Reals]")


def function(
    op_type: str,
    *,
    domain: str = "",
    ns_around: float = math.inf,
    output_range: tuple[float, float] | None = None,
    cases: Callable[[], Iterable[op.Case]] = anywhere,
    variants: Sequence[Mapping[str, float | str]] = (),
    written: Callable[[op.Site], Sequence[ir.Value]] | None = None,
    exponent: float | None = None,
    defined: tuple[float, float] = (-math.inf, math.inf),
) -> Callable[[Decorated], Decorated]:
    """Makes the formula known as an operator; arguments as `Function` has them."""

    def known(formula: Decorated) -> Decorated:
        made = Function(op_type, formula, cases, domain, ns_around, output_range, variants, written)
        op.enter(replace(made, exponent=exponent, defined=defined))
        return formula

    return known


def lower_around(
    site: op.Site, defined: tuple[float, float] = (-math.inf, math.inf)
) -> list[ir.Value]:
    """DequantizeLinear -> the operator -> QuantizeLinear; per-tensor qparams only.

    Args:
        site: of the node.
        defined: between which numbers it has a value: a Clip holds the first operand there.
    """
    reals = [
        value
        if value is None or site.plan.inputs[i] is None
        else site.tape.op(
            "DequantizeLinear",
            [value, *site.scale_and_zero_point(f"in{i}", site.qparams_in(i))],
            name=f"{site.node.name}_in{i}_dequantize",
        )
        for i, value in enumerate(site.inputs)
    ]
    if any(map(math.isfinite, defined)):
        reals[0] = _within(site, reals[0], defined)
    results = site.float_node(reals)
    outputs = []
    for i, (value, old) in enumerate(zip(results, site.node.outputs, strict=True)):
        if i >= len(site.plan.outputs) or site.plan.outputs[i] is None:
            outputs.append(value)
            continue
        qparams = site.qparams_out(i)
        parameters = site.scale_and_zero_point(f"out{i}", qparams)
        name = f"{site.node.name}_out{i}_quantize"
        integers_out = site.tape.op("QuantizeLinear", [value, *parameters], name=name)
        integers_out.type, integers_out.shape = (
            ir.TensorType(ir.DataType[qparams.dtype.onnx]),
            old.shape,
        )
        outputs.append(integers_out)
    return outputs


def _within(site: op.Site, x: ir.Value | None, defined: tuple[float, float]) -> ir.Value:
    bounds = [
        site.constant(name, np.array(bound, np.float32)) if math.isfinite(bound) else None
        for name, bound in zip(("low", "high"), defined, strict=True)
    ]
    return site.tape.op("Clip", [x, *bounds], name=f"{site.node.name}_defined")


def lower_function(site: op.Site, function: Callable[[op.Reals], op.Reals]) -> list[ir.Value]:
    """The first operand's integers looked up in a table of f; wide integers: around float."""
    if not _tables.is_tabulable(site.plan):
        return lower_around(site)
    p, q = site.qparams_in(0), site.qparams_out()
    return _tables.lower_table(site, _tables.tabulate(function, p, q))


def table_kernel(call: op.Call, function: Callable[[op.Reals], op.Reals]) -> IntArray:
    """Integers of a function of the first operand, computed in float64 and rounded to float32 once.

    The function is taken of all 256 integers, or of those that occur where integers are wider.

    Raises:
        ShapeError: integers or qparams are missing or do not fit together.
    """
    x = call.integers(0)
    p, q = call.qparams_in(0), call.qparams_out()
    if p.dtype.bits <= _tables.TABLE_BITS:
        return _tables.look_up(_tables.tabulate(function, p, q), x, p.dtype)
    found, places = np.unique(x, return_inverse=True)
    table = quantize(_tables.rounded(function, dequantize(found, p)), q)
    return np.asarray(table[places].reshape(x.shape))


def around_kernel(call: op.Call, function: Callable[..., op.Reals]) -> IntArray:
    """Integers of a function of operands that broadcast, reals too, as `table_kernel`."""
    reals = []
    for i, x in enumerate(call.inputs):
        if i < len(call.plan.inputs) and call.plan.inputs[i] is not None:
            reals.append(dequantize(call.integers(i), call.qparams_in(i)))
        elif x is not None and x.dtype == np.float32:
            reals.append(np.asarray(x, np.float32))
        else:
            got = "nothing" if x is None else str(x.dtype)
            raise call.shape_error(f"input {i} is {got}; without qparams, float32 is wanted.")
    with call.shape_errors():
        values = _tables.rounded(function, *reals)
    return quantize(values, call.qparams_out())
