"""Rows of three quantized embeddings, added and normalized: the entrance of BERT."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxq.affine import dequantize
from onnxq.operator import Array, Case, IntegerCall, IntegerOperator, Singles, register_integer
from onnxq.operator.examples import integers, scales, zero
from onnxq.operator.integer_call import stored
from onnxq.operator.site import MICROSOFT

WORD, POSITION, SEGMENT, GAMMA, BETA = range(2, 7)
NAMES = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")
MASK, SCALES, ZERO_POINTS = 7, 8, 13  # of the five operands, in their order
EPSILON = 1e-12
UNIT = 2.0**-24  # largest relative error of one rounding


@register_integer
class QEmbedLayerNormalization(IntegerOperator):
    """Y = (S - mean S) / sqrt(var S + epsilon) gamma + beta over the last axis.

    S[b, t] = word[ids[b, t]] + position[t] + segment[segment_ids[b, t]], each operand
    (q - zero_point) * scale, per tensor. com.microsoft: inputs ids (B, T), segment_ids (B, T) or
    absent, word (V, H), position (P, H), segment or absent, gamma (H,), beta (H,), mask (B, T) or
    absent, then five scales and five zero points. Outputs Y (B, T, H) and the number of ones in
    each row of the mask, int32 (B,); 0 without a mask.

    ONNX Runtime adds from the first to the last, in float32. Where its compiler fuses products with
    sums (ARM), Y is within `bound`.
    """

    op_type = "QEmbedLayerNormalization"
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Y and the counts."""
        parts = _parts(call)
        with call.shape_errors():
            y = parts.centred / parts.deviation * parts.gamma + parts.beta
        batch = parts.centred.shape[0]
        if call.optional(MASK) is None:
            return np.asarray(y), np.zeros(batch, np.int32)
        mask = _integers(call, MASK, "mask")
        if mask.ndim != 2 or len(mask) != batch:
            raise call.shape_error(f"the mask has shape {mask.shape}; wanted that of the ids.")
        return np.asarray(y), np.asarray((mask == 1).sum(axis=1), np.int32)

    def bound(self, call: IntegerCall) -> Array | None:
        """2 u ((H + 4) (mean |S| + |S - mean|) / deviation |gamma| + |Y| + |beta|), u = 2^-24.

        Sums of H numbers are off by H u of their sizes at most.
        """
        parts = _parts(call)
        width = parts.centred.shape[-1]
        sizes = (parts.mean_size + np.abs(parts.centred)) / parts.deviation * np.abs(parts.gamma)
        y = parts.centred / parts.deviation * parts.gamma + parts.beta
        last = np.abs(y) + np.abs(parts.beta)
        return np.asarray(2 * UNIT * ((width + 4) * sizes.astype(np.float64) + last))

    def cases(self) -> Iterable[Case]:
        for dtype in ("uint8", "int8"):
            for name, with_segments, with_mask in (
                ("all", True, True),
                ("no segments", False, True),
                ("no mask", True, False),
            ):
                yield _case(f"{dtype}, {name}", dtype, 2, with_segments, with_mask)
        yield _case("one row", "uint8", 1, with_segments=False, with_mask=False)
        yield _case("no row", "uint8", 0, with_segments=True, with_mask=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Terms of the formula, (B, T, H); deviation, mean_size: (B, T, 1); gamma, beta: (H,)."""

    centred: Singles
    deviation: Singles
    mean_size: Singles
    gamma: Singles
    beta: Singles


def _parts(call: IntegerCall) -> _Parts:
    ids = _integers(call, 0, "input_ids")
    word, position = _reals(call, WORD), _reals(call, POSITION)
    if ids.ndim != 2 or position.ndim != 2 or ids.shape[1] > len(position):
        raise call.shape_error(
            f"ids {ids.shape} and positions {position.shape}; wanted (batch, tokens), and a row "
            "for each token."
        )
    with call.shape_errors():
        total = _rows(call, word, ids) + position[: ids.shape[1]]
        if call.optional(1) is not None:
            segments = _integers(call, 1, "segment_ids")
            total = total + _rows(call, _reals(call, SEGMENT), segments)
        width = np.float32(total.shape[-1])
        if total.ndim != 3 or not width:
            raise call.shape_error(f"sums of shape {total.shape}; wanted (batch, tokens, width).")
        mean = _sum(total) / width
        centred = total - mean
        epsilon = np.float32(call.real("epsilon", EPSILON))
        deviation = np.sqrt(_sum(centred * centred) / width + epsilon)
        mean_size = np.abs(total).mean(axis=-1, keepdims=True)
    return _Parts(centred, deviation, mean_size, _reals(call, GAMMA), _reals(call, BETA))


def _integers(call: IntegerCall, slot: int, name: str) -> Array:
    x = call.operand(slot, name)
    if x.dtype != np.int32:
        raise call.shape_error(f"{name} is {x.dtype}; wanted int32.")
    return x


def _reals(call: IntegerCall, slot: int) -> Singles:
    """Numbers of one of the five operands."""
    name, place = NAMES[slot - WORD], slot - WORD
    x = call.operand(slot, name)
    scale, point = call.operand(SCALES + place, f"{name}_scale"), call.optional(ZERO_POINTS + place)
    qparams = call.qparams_of(name, scale, point, call.qdtype(x, name))
    return dequantize(stored(x), qparams)


def _rows(call: IntegerCall, table: Singles, ids: Array) -> Singles:
    if table.ndim != 2 or (ids.size and not (ids.min() >= 0 and ids.max() < len(table))):
        raise call.shape_error(f"an id is beyond the rows of a table of shape {table.shape}.")
    return np.asarray(table[ids])


def _sum(x: Singles) -> Singles:
    """The sum over the last axis from the first number to the last, rounded after each."""
    return np.add.accumulate(x, axis=-1, dtype=np.float32)[..., -1:]


def _case(name: str, dtype: str, batch: int, with_segments: bool, with_mask: bool) -> Case:
    tokens, width = 5, 12
    ids = (integers(batch, tokens) % 7).astype(np.int32)
    segments = ids % 2 if with_segments else None
    tables = [integers(rows, width, dtype=dtype) for rows in (7, 6, 2)]
    vectors = [integers(width, dtype=dtype) for _ in range(2)]
    steps: list[Array | None] = [scales(s) for s in (0.013, 0.007, 0.003, 0.01, 0.02)]
    points: list[Array | None] = [zero(p, dtype) for p in (3, 100, 7, 0, 50)]
    if not with_segments:
        steps[2] = points[2] = None
    table = tables[2] if with_segments else None
    mask = (ids % 3 > 0).astype(np.int32) if with_mask else None
    inputs = (ids, segments, *tables[:2], table, *vectors, mask, *steps, *points)
    constants = tuple(i for i, x in enumerate(inputs) if x is not None and i not in (0, 1, MASK))
    return Case(name, inputs, constants, {"epsilon": 1e-5}, outputs=2)
