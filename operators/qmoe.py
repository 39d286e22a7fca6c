"""Mixture of experts whose weights are integers of 2, 4 or 8 bits in groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxq.core.packing import unpacked_rows
from onnxq.errors import UnsupportedError
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    IntegerCall,
    IntegerOperator,
    Reals,
    register_integer,
)
from onnxq.operator.examples import integers, normal
from onnxq.operator.site import MICROSOFT

OP = "QMoE"
SWIGLU = "swiglu"
FC1, FC2, FC3 = (2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13)
"""Slots of integers, scales, bias and zero points of each of an expert's layers."""
ROUTER_WEIGHTS = 14
NAMES = (
    *("input", "router_probs"),
    *(f"fc{i}_{what}" for i in (1, 2, 3) for what in ("experts_weights", "scales", "experts_bias")),
    *(f"fc{i}_zero_points" for i in (1, 2, 3)),
    "router_weights",
)
NEEDED = (0, 1, 2, 3, 5, 6)
BITS, MIN_GROUP = (2, 4, 8), 16
ALL_IN_FLOAT = 4  # bits: others may make int8 of each group of a row
INT8_MAX = 127
HALF_ULP = 2.0**-24  # of float32, relative: one rounding
FUNCTION_ULPS = 32  # of exp, tanh and what stands around them
STEEPEST = 1.14  # slope of silu (1.10) and of gelu (1.13)
TANH_SCALE, TANH_CUBE = 0.7978845608, 0.044715


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One layer of all experts, in float64.

    Attributes:
        weight: (experts, outputs, inputs).
        magnitude: likewise, (integer + zero point) * scale: what is added and taken away again.
        bias: (experts, outputs).
        bits: of its integers.
    """

    weight: Reals
    magnitude: Reals
    bias: Reals
    bits: int

    def __call__(self, expert: int, x: Reals, error: Reals) -> tuple[Reals, Reals]:
        """Rows x W' + b, and how far ONNX Runtime may be from it where x is off by an error."""
        w, size = self.weight[expert], self.magnitude[expert]
        y = x @ w.T + self.bias[expert]
        n = x.shape[-1]
        if self.bits != ALL_IN_FLOAT:
            error = error + (np.abs(x).max(axis=-1, keepdims=True) + error) / INT8_MAX
        rounded = (6 + min(n, 2 * np.sqrt(n))) * HALF_ULP
        total = (np.abs(x) + error) @ size.T + np.abs(self.bias[expert])
        return y, error @ np.abs(w).T + rounded * total


@register_integer
class QMoE(IntegerOperator):
    """Y[t] = sum over the k experts e of token t of r[t, e] (W2[e] act(W1[e] X[t] + b1) + b2).

    com.microsoft: inputs X ((tokens, hidden) or (batch, tokens, hidden)), router_probs (tokens,
    experts), then integers, scales and bias of fc1 and fc2, zero points (absent: 2^(bits - 1)) and
    router_weights. Integers are uint8 (experts, outputs, inputs * bits / 8), low bits first; scales
    (experts, outputs, groups) float32; zero points packed like a row of integers.

    The experts of a token are those of the k largest router_probs. r is their softmax, whether
    normalize_routing_weights is set or not; or router_weights, over their sum where it is set.

    4 bits compute in float32. 8 bits round each group of an activation to int8 since ONNX Runtime
    1.31; 2 bits do where a table look-up stands for the product. The kernel computes in float64,
    so that results are compared within `bound`.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Y in float32.

        Raises:
            UnsupportedError: what ONNX Runtime has no CPU kernel for: a third layer, SwiGLU that is
                not interleaved, scales per row, bits of one layer alone.
        """
        return (_run(call)[0].astype(np.float32),)

    def bound(self, call: IntegerCall) -> Array | None:
        """Rounding errors of sums and functions, carried through fc2; of int8 an LSB per number."""
        return _run(call)[1]

    def cases(self) -> Iterable[Case]:
        """Activations, bits, groups, zero points, routing, batches."""
        experts, hidden, inner = 4, 64, 96
        x, router = normal(5, hidden), normal(5, experts, seed=1)
        base: dict[str, AttributeValue] = {"k": 2, "normalize_routing_weights": 1}
        for act in ("relu", "gelu", "silu", "identity", SWIGLU):
            fused: dict[str, AttributeValue] = {"swiglu_fusion": 1} if act == SWIGLU else {}
            outputs = inner * (2 if fused else 1)
            for bits in (2, 4, 8):
                one = _example((experts, outputs, hidden), bits, 32)
                two = _example((experts, hidden, inner), bits, 32)
                attributes = {
                    **base,
                    **fused,
                    "activation_type": act,
                    "expert_weight_bits": bits,
                    "block_size": 32,
                }
                plain = (x, router, *one[:3], *two[:3])
                yield Case(f"{act}, {bits} bits", plain, (2, 3, 4, 5, 6, 7), attributes)
                points = (*plain, None, None, None, one[3], two[3])
                slots = (2, 3, 4, 5, 6, 7, 11, 12)
                yield Case(f"{act}, {bits} bits, zero points", points, slots, attributes)
        one, two = (
            _example((experts, inner, hidden), 4, 16),
            _example((experts, hidden, inner), 4, 16),
        )
        bare = (x.reshape(1, 5, hidden), router, one[0], one[1], None, two[0], two[1])
        four: dict[str, AttributeValue] = {"expert_weight_bits": 4, "block_size": 16}
        yield Case("batches, no bias", bare, (2, 3, 5, 6), four)
        weights = (
            *bare,
            *[None] * (ROUTER_WEIGHTS - len(bare)),
            np.abs(normal(5, experts, seed=2)),
        )
        yield Case("router weights", weights, (2, 3, 5, 6), four | {"k": 3})
        both = four | {"k": 3, "normalize_routing_weights": 1}
        yield Case("normalized router weights", weights, (2, 3, 5, 6), both)
        gpt_oss: dict[str, AttributeValue] = {
            "activation_alpha": 1.702,
            "activation_beta": 1.0,
            "swiglu_limit": 1.5,
            "activation_type": SWIGLU,
            "swiglu_fusion": 1,
        }
        wide = _example((experts, 2 * inner, hidden), 4, 16)
        gated = (x, router, *wide[:3], *two[:3])
        yield Case("clamped gates", gated, (2, 3, 4, 5, 6, 7), {**four, **gpt_oss})


def _example(shape: tuple[int, int, int], bits: int, group: int) -> tuple[Array, ...]:
    """Integers, scales, bias and zero points of a layer."""
    experts, outputs, inputs = shape
    scale = (np.abs(normal(experts, outputs, inputs // group)) + np.float32(0.1)) / (1 << bits)
    points = integers(experts, outputs, -(-inputs // group * bits // 8), seed=1)
    packed = integers(experts, outputs, inputs * bits // 8)
    return packed, scale.astype(np.float32), normal(experts, outputs), points


def _run(call: IntegerCall) -> tuple[Reals, Reals]:
    """Y and its bound, float64."""
    _check_attributes(call)
    _check_arrays(call)
    x, router = call.operand(0, "input"), call.operand(1, "router_probs")
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    one, two = (_layer(call, slots) for slots in (FC1, FC2))
    route = _routed(call, router.astype(np.float64))
    y, bound = np.zeros(rows.shape), np.zeros(rows.shape)
    for expert in range(router.shape[1]):
        seen = np.flatnonzero(route[:, expert])
        if not len(seen):
            continue
        h, error = one(expert, rows[seen], np.zeros(rows[seen].shape))
        made, off = two(expert, *_activated(call, h, error))
        share = route[seen, expert][:, np.newaxis]
        y[seen] += share * made
        bound[seen] += share * (off + FUNCTION_ULPS * HALF_ULP * np.abs(made))
    return y.reshape(x.shape), bound.reshape(x.shape)


def _check_attributes(call: IntegerCall) -> None:
    """Raises UnsupportedError for what ONNX Runtime has no CPU kernel for."""
    bits, group = call.integer("expert_weight_bits", 4), call.integer("block_size", 0)
    own = {call.integer(f"fc{i}_expert_weight_bits", bits) for i in (1, 2)}
    gated = call.text("activation_type", "relu") == SWIGLU
    third = any(call.optional(slot) is not None for slot in FC3)
    kind = call.text("quant_type", "int")
    if third or own != {bits} or kind != "int" or gated != (call.integer("swiglu_fusion", 0) == 1):
        raise UnsupportedError(
            f"{OP}: ONNX Runtime's CPU kernel has no fc3, no bits of one layer alone, no "
            "quant_type but int, and swiglu with swiglu_fusion 1 alone."
        )
    if bits not in BITS or group < MIN_GROUP:
        raise UnsupportedError(
            f"{OP}: {bits} bits in groups (block_size) of {group}; wanted 2, 4 or 8 bits, and "
            f"{MIN_GROUP} numbers or more."
        )


def _check_arrays(call: IntegerCall) -> None:
    """Raises ShapeError for arrays that do not fit together."""
    for slot, (dtype, shape) in _wanted(call).items():
        array = call.optional(slot)
        if array is None and slot in NEEDED:
            raise call.shape_error(f"input {slot}, {NAMES[slot]}, is absent; it is needed.")
        if array is not None and (array.dtype != dtype or array.shape != shape):
            raise call.shape_error(
                f"{NAMES[slot]} is {array.dtype} of shape {array.shape}; wanted "
                f"{np.dtype(dtype)}, {shape}."
            )
        if array is not None and "scale" in NAMES[slot] and not np.isfinite(array).all():
            raise call.shape_error(f"{NAMES[slot]} hold NaN or Inf.")


def _wanted(call: IntegerCall) -> dict[int, tuple[type[np.generic], tuple[int, ...]]]:
    """Slot -> type and shape that its array has to have, by those of the first three."""
    bits, group = call.integer("expert_weight_bits", 4), call.integer("block_size", 0)
    x, router, first = (call.operand(i, name) for i, name in enumerate(NAMES[:3]))
    if x.ndim not in (2, 3) or router.ndim != 2 or first.ndim != 3:
        raise call.shape_error(
            f"input {x.dtype} {x.shape}, router_probs {router.dtype} {router.shape} and "
            f"fc1_experts_weights {first.dtype} {first.shape}; wanted 2 or 3, 2 and 3 axes."
        )
    hidden, experts, outputs = x.shape[-1], router.shape[1], first.shape[1]
    tokens = (x.size // hidden if hidden else 0, experts)
    wanted: dict[int, tuple[type[np.generic], tuple[int, ...]]] = {
        0: (np.float32, x.shape),
        1: (np.float32, tokens),
        ROUTER_WEIGHTS: (np.float32, tokens),
    }
    inner = outputs // (2 if call.text("activation_type", "relu") == SWIGLU else 1)
    for slots, rows, inputs in ((FC1, outputs, hidden), (FC2, hidden, inner)):
        groups, packed = inputs // group, (experts, rows, inputs * bits // 8)
        points = (experts, rows, -(-groups * bits // 8))
        shapes = (packed, (experts, rows, groups), (experts, rows), points)
        types = (np.uint8, np.float32, np.float32, np.uint8)
        wanted |= dict(zip(slots, zip(types, shapes, strict=True), strict=True))
        if not inputs or inputs % group:
            raise call.shape_error(f"groups of {group} do not divide rows of {inputs} weights.")
    if not 1 <= call.integer("k", 1) <= experts:
        raise call.shape_error(f"k {call.integer('k', 1)}; there are {experts} experts.")
    return wanted


def _layer(call: IntegerCall, slots: tuple[int, int, int, int]) -> _Layer:
    bits, group = call.integer("expert_weight_bits", 4), call.integer("block_size", 0)
    packed, scale = (call.operand(slot, NAMES[slot]) for slot in slots[:2])
    experts, outputs, groups = scale.shape
    shape = (experts, outputs, groups * group)
    rows = np.asarray(packed, np.uint8).reshape(experts * outputs, -1)
    q = unpacked_rows(rows, bits).astype(np.float64)
    given = call.optional(slots[3])
    points = np.full((experts * outputs, groups), 1 << (bits - 1), np.float64)
    if given is not None:
        rows = np.asarray(given, np.uint8).reshape(experts * outputs, -1)
        points[:] = unpacked_rows(rows, bits)[:, :groups]
    scales = np.repeat(scale.reshape(-1, groups).astype(np.float64), group, axis=1)
    points = np.repeat(points, group, axis=1)
    bias = call.optional(slots[2])
    return _Layer(
        ((q - points) * scales).reshape(shape),
        ((q + points) * np.abs(scales)).reshape(shape),
        np.zeros(shape[:2]) if bias is None else bias.astype(np.float64),
        bits,
    )


def _routed(call: IntegerCall, router: Reals) -> Reals:
    """(tokens, experts): what each expert's result counts; 0 of those that are not chosen."""
    k = call.integer("k", 1)
    chosen = np.argsort(router, axis=1, kind="stable")[:, ::-1][:, :k]
    given = call.optional(ROUTER_WEIGHTS)
    picked = np.take_along_axis(router, chosen, axis=1)
    share = np.exp(picked - picked.max(axis=1, keepdims=True))
    if given is not None:
        share = np.take_along_axis(given.astype(np.float64), chosen, axis=1)
    if given is None or call.integer("normalize_routing_weights", 0):
        share = share / share.sum(axis=1, keepdims=True)
    found = np.zeros(router.shape)
    np.put_along_axis(found, chosen, share, axis=1)
    return found


def _activated(call: IntegerCall, h: Reals, error: Reals) -> tuple[Reals, Reals]:
    """The activation of fc1's results, and its error.

    swiglu: G sigmoid(alpha G) (L + beta), G = min(h[::2], limit), L = clip(h[1::2], -limit, limit).
    """
    act = call.text("activation_type", "relu")
    if act in ("relu", "identity"):
        return (np.maximum(h, 0) if act == "relu" else h), error
    if act != SWIGLU:
        gate = 1 / (1 + np.exp(-h))
        if act == "gelu":
            gate = (1 + np.tanh(TANH_SCALE * (h + TANH_CUBE * h**3))) / 2
        return h * gate, STEEPEST * error + FUNCTION_ULPS * HALF_ULP * np.abs(h)
    limit = call.real("swiglu_limit", np.inf)
    g, off = np.minimum(h[:, ::2], limit), error[:, ::2]
    gated = g / (1 + np.exp(-call.real("activation_alpha", 1.0) * g))
    gated_off = STEEPEST * off + FUNCTION_ULPS * HALF_ULP * np.abs(g)
    linear = np.clip(h[:, 1::2], -limit, limit) + call.real("activation_beta", 0.0)
    linear_off = error[:, 1::2] + HALF_ULP * np.abs(linear)
    return gated * linear, np.abs(gated) * linear_off + gated_off * (np.abs(linear) + linear_off)
