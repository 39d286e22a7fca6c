"""Attention of several heads whose projections are products of integers."""

from collections.abc import Iterable

import numpy as np

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import integers, ints32, normal, scales, zero
from onnxq.operator.integer_call import stored
from onnxq.operator.site import MICROSOFT
from onnxq.operators._columns import check_sum, columns, matmul_columns, to_float
from onnxq.operators._heads import Heads, attend, attention_bound, heads_of, merge_heads
from onnxq.operators._pairs import PairedSums, matmul_pairs
from onnxq.targets.accumulation import EXACT, Accumulator, Pairs, SaturationMode


@op.register_integer
class QAttention(PairedSums):
    """Y = softmax(scale Q K^T + mask) V per head; [Q K V] is one product of integers.

    [Q K V] = float32(sum (X - x_zp) (W - w_zp[n])) * (x_scale * w_scale[n]) + bias[n], rounded
    after each step. com.microsoft: inputs X (B, S, C) uint8, W (C, 3 H), bias (3 H,), x_scale,
    w_scale, mask_index (see `added_mask`), x_zp, w_zp, past (2, B, heads, P, H / heads). w_scale
    and w_zp are one number or (3 H,) each, whatever the other is. Outputs Y (B, S, H) and present
    (2, B, heads, P + S, H / heads), keys and values behind the past ones.

    Q, K, V and present are ONNX Runtime's to the bit, Y is within `bound`.
    """

    op_type = "QAttention"
    domains = (MICROSOFT,)
    weights = (1,)

    def kernel_on(self, call: op.IntegerCall, accumulator: Accumulator) -> tuple[op.Array, ...]:
        """Y and present, float32."""
        heads = _heads(call, accumulator)
        return merge_heads(attend(heads)), np.stack([heads.k, heads.v])

    def pairs(self, call: op.IntegerCall, saturation_mode: SaturationMode) -> Pairs | None:
        weight = call.operand(1, "weight")
        return matmul_pairs(np.dtype(np.uint8), stored(weight), saturation_mode)

    def bound(self, call: op.IntegerCall) -> op.Array | None:
        """`attention_bound` of Y; the projections in front of it are exact."""
        return self.bound_on(call, EXACT)

    def bound_on(self, call: op.IntegerCall, accumulator: Accumulator) -> op.Array | None:
        """Largest difference on a machine: what becomes of Q, K and V there is in it."""
        return merge_heads(attention_bound(_heads(call, accumulator)))

    def cases(self) -> Iterable[op.Case]:
        yield from _cases()


def _heads(call: op.IntegerCall, accumulator: Accumulator) -> Heads:
    """Q, K and V of every head, the past in front, and what masks add."""
    count = call.integer("num_heads", 0)
    _check_attributes(call, count)
    parts = np.split(_projected(call, count, accumulator), 3, axis=2)
    return heads_of(call, parts, call.optional(5), call.optional(8))


def _check_attributes(call: op.IntegerCall, count: int) -> None:
    if count < 1:
        raise call.shape_error(f"num_heads is {count}; wanted 1 or more.")
    for name in ("do_rotary", "past_present_share_buffer"):
        if call.integer(name, 0):
            raise UnsupportedError(
                f"{call.op_type}: {name} is set; ONNX Runtime's CPU kernel ignores it or refuses "
                "to run. Leave the attention in float."
            )


def _projected(call: op.IntegerCall, count: int, accumulator: Accumulator) -> op.Singles:
    """float32 (B, S, 3 H)."""
    x, w = call.operand(0, "input"), call.operand(1, "weight")
    bias = call.operand(2, "bias")
    x_qdtype = call.qdtype(x, "input", ("uint8",))
    x_scale = call.operand(3, "input_scale")
    x_qparams = call.qparams_of("input", x_scale, call.optional(6), x_qdtype)
    scale, point = call.operand(4, "weight_scale"), call.optional(7)
    if x.ndim != 3 or w.ndim != 2 or x.shape[2:] != w.shape[:1]:
        raise call.shape_error(
            f"input of shape {x.shape} by a weight of shape {w.shape}; wanted "
            "(batch, length, size) and (size, 3 * hidden)."
        )
    if not w.shape[1] or w.shape[1] % (3 * count):
        raise call.shape_error(
            f"a weight of {w.shape[1]} columns for {count} heads; wanted a multiple of {3 * count}."
        )
    if scale.ndim > 1 or (point is not None and point.ndim > 1):
        raise call.shape_error(
            f"weight_scale has shape {scale.shape}, weight_zero_point "
            f"{() if point is None else point.shape}; wanted one number or ({w.shape[1]},)."
        )
    if bias.shape != w.shape[1:]:
        raise call.shape_error(f"bias has shape {bias.shape}; wanted {w.shape[1:]}.")
    if not x.shape[0]:
        raise UnsupportedError(
            f"{call.op_type}: no batch; ONNX Runtime 1.31 aborts the process on it."
        )
    right = columns(call, "weight", w, scale, point)
    check_sum(call, x, w)
    total = matmul_columns(call, x, x_qparams, right, w, accumulator)
    return to_float(call, total, x_qparams.scale, right, bias)


def _cases() -> Iterable[op.Case]:
    batch, length, size, width = 2, 4, 5, 18
    x, w = integers(batch, length, size), integers(size, width, dtype="int8", seed=1)
    column = (0.01 + 0.01 * np.random.default_rng(1).random(width)).astype(np.float32)
    points = np.linspace(-128, 127, width).astype(np.int8)
    given = (1, 2, 3, 4, 7)
    plain = (x, w, normal(width), scales(0.03), scales(0.02), None, zero(7), zero(0, "int8"))
    finer = (x, w, normal(width), scales(0.03), column, None, zero(128), points)
    past = normal(2, batch, 2, 3, 3, seed=5)

    def case(
        name: str,
        inputs: tuple[op.Array | None, ...],
        outputs: int = 1,
        **attributes: op.AttributeValue,
    ) -> op.Case:
        return op.Case(name, inputs, given, {"num_heads": 2, **attributes}, outputs)

    def masked(*shape: int, keep: int = 3) -> op.Array:
        ones = np.arange(np.prod(shape, dtype=int)).reshape(shape) % keep > 0
        return np.asarray(ones, np.int32)

    def by(mask: op.Array, *more: op.Array) -> tuple[op.Array | None, ...]:
        return (*finer[:5], mask, *finer[6:], *more)

    yield case("plain", plain)
    yield op.Case("no zero points", (*plain[:5],), (1, 2, 3, 4), {"num_heads": 2})
    yield case("per column", finer)
    yield case("scale per column, one zero point", (*finer[:7], zero(-128, "int8")))
    yield case("one scale, zero point per column", (*plain[:7], points))
    unsigned = integers(size, width, seed=2)
    yield case("uint8, zero point 255", (x, unsigned, *plain[2:7], zero(255)))
    yield case("uint8, per column", (x, unsigned, *finer[2:7], points.view(np.uint8)))
    yield case("one head, present", finer, 2, num_heads=1)
    yield case("ends", by(ints32(2, 4)))
    yield case("ends at 0 and beyond", by(ints32(0, 9)))
    yield case("ends and starts", by(ints32(3, 4, 1, -2)))
    yield case("starts beyond", by(ints32(4, 4, 9, 2)))
    yield case("ends, with what other devices read", by(ints32(3, 2, 0, 4, 8, 0, 4, 8)))
    yield case("mask of keys", by(masked(batch, length)))
    yield case("mask of rows and keys", by(masked(batch, length, length)))
    yield case("mask of two axes, one number each", by(masked(batch, 1)))
    yield case("mask of one number", by(masked(1, 1)))
    nothing = np.zeros((batch, length), np.int32)
    yield case("masked throughout", by(nothing))
    lowest = float(np.finfo(np.float32).min)
    yield case("masked throughout by the lowest", by(nothing), mask_filter_value=lowest)
    yield case("masked throughout, one-sided", by(nothing), unidirectional=1)
    yield case("one-sided", finer, unidirectional=1)
    yield case("one-sided, mask", by(masked(batch, length, length)), unidirectional=1)
    yield case("past", (*finer, past), 2)
    behind = by(masked(batch, 3 + length), past)
    yield case("past, one-sided, mask", behind, 2, unidirectional=1, mask_filter_value=-3.5)
    yield case("past, one row", (x[:, :1], *finer[1:], past), 2, unidirectional=1)
    yield case("scale", finer, scale=0.9)
    yield case("scale below 0", finer, scale=-0.02)
    yield case("no row", (x[:, :0], *plain[1:]))
