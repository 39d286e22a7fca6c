"""Inputs of com.microsoft's QLinear operators: integers with scale and zero point beside each."""

from collections.abc import Iterable, Mapping

import numpy as np

from onnxq.dtypes import QDType
from onnxq.operator import Array, AttributeValue, Case, IntegerCall, NodeCall, NodePlan
from onnxq.operator.examples import integers, scales, zero
from onnxq.qparams import IntArray, QParams


def unary(call: IntegerCall, names: tuple[str, str] = ("X", "Y")) -> tuple[Array, NodePlan]:
    """(x, its qparams and those of the result) from x, x_scale, x_zp, y_scale, y_zp.

    A zero point that is absent is 0; the result has the type of x.
    """
    x = call.operand(0, names[0])
    qdtype = call.qdtype(x, names[0])
    p = call.qparams(names[0], 1, qdtype)
    return x, NodePlan((p,), (call.qparams(names[1], 3, qdtype),))


def binary(call: IntegerCall) -> tuple[list[Array], NodePlan]:
    """([a, b], qparams) from a, a_scale, a_zp, b, b_scale, b_zp, c_scale, c_zp; else as `unary`."""
    a, b = call.operand(0, "A"), call.operand(3, "B")
    qdtype = call.qdtype(a, "A")
    same_type(call, b, "B", qdtype)
    known = (call.qparams("A", 1, qdtype), call.qparams("B", 4, qdtype))
    return [a, b], NodePlan(known, (call.qparams("C", 6, qdtype),))


def same_type(call: IntegerCall, x: Array, name: str, qdtype: QDType) -> None:
    """Guards integers that must have the type of the first operand."""
    if x.dtype != qdtype.storage:
        raise call.shape_error(f"{name} has dtype {x.dtype}; wanted {qdtype}, as the others.")


def part(call: IntegerCall, name: str, slot: int, qdtype: QDType) -> tuple[IntArray, QParams]:
    """(x, qparams) of one operand of several: x in `slot`, its scale and zero point behind it."""
    x = call.operand(slot, name)
    same_type(call, x, name, qdtype)
    scale = call.operand(slot + 1, f"{name}_scale")
    p = call.qparams_of(name, scale, call.optional(slot + 2), qdtype)
    return np.asarray(x, qdtype.storage), p


def channels_first(call: NodeCall, x: Array) -> Array:
    """(N, C, *spatial), from (N, *spatial, C) where the node says `channels_last`."""
    if not call.integer("channels_last", 0) or x.ndim < 3:
        return x
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def channels_last(call: NodeCall, y: Array) -> Array:
    """The way back from `channels_first`."""
    if not call.integer("channels_last", 0):
        return y
    return np.ascontiguousarray(np.moveaxis(y, 1, -1))


def binary_cases(a_scale: float, b_scale: float, c_scale: float) -> Iterable[Case]:
    """Examples of `binary`: types, broadcasts on either side, zero points absent or extreme.

    The last one has the given scales, with which some machines round otherwise.
    """
    x, y = integers(2, 3, 4), integers(2, 3, 4, seed=1)
    a, b, c = (scales(0.25), zero(7)), (scales(0.125), zero(200)), (scales(0.5), zero(128))
    fixed = (1, 2, 4, 5, 6, 7)
    yield Case("same shape", (x, *a, y, *b, *c), fixed)
    yield Case("inner broadcast", (integers(2, 3, 1), *a, y, *b, *c), fixed)
    yield Case("inner broadcast of b", (x, *a, integers(2, 3, 1), *b, *c), fixed)
    yield Case("scalar first", (integers(1), *a, y, *b, *c), fixed)
    yield Case("vector of another rank", (x, *a, integers(4), *b, *c), fixed)
    yield Case("outer product", (integers(3, 1), *a, integers(1, 4), *b, *c), fixed)
    yield Case("no zero point of the result", (x, *a, y, *b, scales(0.6)), fixed[:-1])
    low, high = zero(-128, "int8"), zero(127, "int8")
    yield Case(
        "int8, extreme zero points",
        (
            integers(5, 7, dtype="int8"),
            scales(0.1),
            low,
            integers(5, 7, dtype="int8", seed=1),
            scales(0.07),
            high,
            scales(0.11),
            low,
        ),
        fixed,
    )
    yield Case("empty", (integers(0, 3), *a, integers(3), *b, *c), fixed)
    p, q, out = (scales(a_scale), zero(79)), (scales(b_scale), zero(164)), scales(c_scale)
    every = (integers(256, 64), *p, integers(256, 64, seed=1), *q, out, zero(140))
    yield Case("rounded otherwise by some machines", every, fixed)


def unary_cases(
    result: tuple[Array, Array], attributes: Mapping[str, AttributeValue] | None = None
) -> Iterable[Case]:
    """Examples of `unary`: types, zero points absent, scales of shape (1,), no elements.

    Args:
        result: scale and zero point, uint8, in which the function of [-6.4, 6.35] has many
            integers.
        attributes: of the node.
    """
    p, fixed = (scales(0.05), zero(128)), (1, 2, 3, 4)
    yield Case("plain", (integers(2, 3, 50), *p, *result), fixed, attributes)
    yield Case(
        "no zero points", (integers(300), scales(0.03), None, result[0], None), (), attributes
    )
    signed = (np.full(1, 0.25, np.float32), np.full(1, -5, np.int8))
    last = (np.full(1, 0.25, np.float32), np.full(1, -128, np.int8))
    yield Case(
        "int8, shapes (1,)", (integers(300, dtype="int8"), *signed, *last), fixed, attributes
    )
    yield Case("rank 0", (zero(7), *p, *result), fixed, attributes)
    yield Case("empty", (integers(0, 3), *p, *result), fixed, attributes)
