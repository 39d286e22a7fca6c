"""Borders around a tensor."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import quantize
from onnxq.errors import ShapeError
from onnxq.operator.examples import ints, normal
from onnxq.operator.nodes import constant, has_input, infinite
from onnxq.qparams import IntArray, QParams


@op.register
class Pad(op.Operator):
    """Y = X between pads[i] elements before and pads[i + rank] behind along axis i; ONNX Pad-21.

    They are a constant, or X itself by mode reflect, edge or wrap. Negative pads cut away: of X, or
    of Y where a constant is beside it.

    On integers, the constant is its integer: the zero point for 0.
    """

    op_type = "Pad"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Copies integers, so the output has the input's qparams, whose range always holds 0."""
        if has_input(node, 2) and node.attributes.get_string("mode", "constant") == "constant":
            value = constant(node, 2)
            if value is None or value.size != 1:
                return op.Float.because(
                    "its pad value is computed at run time, or no number; a constant is needed"
                )
            if infinite(value):
                return op.Float(
                    op.InfiniteOperand(
                        f"it pads with {value.item():g}: no scale can hold that beside the data"
                    )
                )
            if value.any():
                return op.Float.because(
                    f"it pads with {value.item():g}, which may lie outside the range of its input"
                )
        return op.Rule(op.OpCategory.MOVEMENT, shares_qparams=True, lowered=True)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 4)
        yield op.Case("zeros", (x, ints(0, 1, 2, 0, 0, 1)), (1,))
        yield op.Case("given zero", (x, ints(0, 1, 2, 0, 0, 1), np.array(0, np.float32)), (1, 2))
        yield op.Case("cut away", (x, ints(0, -1, 1, 0, 0, -1)), (1,))
        yield op.Case("axes", (x, ints(1, 2, 0, 1), None, ints(2, 0)), (1, 3))
        for mode in ("reflect", "edge", "wrap"):
            yield op.Case(mode, (x, ints(0, 1, 2, 0, 1, 1)), (1,), {"mode": mode})
            pads = ints(0, 1, -2, 0, -1, 1)
            yield op.Case(f"{mode} beside a cut", (x, pads), (1,), {"mode": mode})
        yield op.Case("pads computed at run time", (x, ints(0, 0, 1, 0, 0, 1)))
        yield op.Case("empty batch", (normal(0, 3), ints(0, 1, 0, 1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """Pad on integers, its value replaced by the integer of it."""
        slots = list(site.inputs)
        if site.node.attributes.get_string("mode", "constant") == "constant":
            qparams = site.shared()
            value = constant(site.node, 2) if has_input(site.node, 2) else None
            slots += [None] * (3 - len(slots))
            slots[2] = site.initializer("value", _integer(value, qparams), qparams.dtype)
        return site.emit(slots)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        value = call.optional(2)
        with call.shape_errors():
            return _padded(call, call.integers(0), _integer(value, call.shared()).item())

    def float_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """Copies of float32, bit for bit; onnx's own takes no negative pads."""
        value = call.optional(2)
        with call.shape_errors():
            return _padded(call, call.plain(0), 0.0 if value is None else value.item())


def _padded(call: op.NodeCall, x: op.Array, value: float) -> tuple[op.Array, ...]:
    before, behind = _widths(x.ndim, call.vector(1), call.optional_vector(3))
    widths = [(max(b, 0), max(e, 0)) for b, e in zip(before, behind, strict=True)]
    mode = call.text("mode", "constant")
    if mode == "constant":
        return (_cropped(np.pad(x, widths, constant_values=value), before, behind),)
    x = _cropped(x, before, behind)  # what is cut away is not repeated on the other side
    _check_reflection(x.shape, widths, mode)
    return (np.asarray(np.pad(x, widths, mode)),)  # type: ignore[call-overload]  # it takes these


def _cropped(x: op.Array, before: Sequence[int], behind: Sequence[int]) -> op.Array:
    """X without what negative pads cut away."""
    cut = [
        slice(max(-b, 0), n - max(-e, 0)) for b, e, n in zip(before, behind, x.shape, strict=True)
    ]
    return np.asarray(x[tuple(cut)])


def _integer(value: op.Array | None, qparams: QParams) -> IntArray:
    """The integer of the pad value, rank 0; 0 where it is absent."""
    real = 0.0 if value is None else float(value.item())
    return quantize(np.asarray(real, np.float32), qparams)


def _check_reflection(shape: tuple[int, ...], widths: list[tuple[int, int]], mode: str) -> None:
    """Raises ShapeError where an axis would be reflected more than once: ONNX Runtime refuses."""
    for size, width in zip(shape, widths, strict=True):
        if mode == "reflect" and max(width) > 0 and max(width) >= size:
            raise ShapeError(
                f"Pad: mode reflect, {max(width)} elements beside an axis of {size} of "
                f"{list(shape)}; wanted less than the axis has."
            )


def _widths(rank: int, pads: list[int], axes: list[int] | None) -> tuple[list[int], list[int]]:
    """Elements before and behind, one entry per axis."""
    along = list(range(rank)) if axes is None else axes
    if len(pads) != 2 * len(along) or any(not -rank <= axis < rank for axis in along):
        raise ShapeError(f"Pad: {len(pads)} pads for axes {along} of a tensor of rank {rank}.")
    before, behind = [0] * rank, [0] * rank
    for i, axis in enumerate(along):
        before[axis], behind[axis] = pads[i], pads[i + len(along)]
    return before, behind
