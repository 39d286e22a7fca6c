"""Matrix product of a float matrix and a group-wise weight of 2, 4 or 8 bits."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq import operator as op
from onnxq.affine import quantize
from onnxq.core.packing import unpacked_rows
from onnxq.dtypes import INT8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator.examples import integers, normal
from onnxq.operator.site import MICROSOFT
from onnxq.operators._linear import REALS
from onnxq.qparams import per_tensor
from onnxq.qparams.groups import INT8_ACCURACY

OP = "MatMulNBits"
BITS = (2, 4, 8)
MIN_BLOCK = 16
INT8_BLOCKS_OF_2_BITS = (32, 64, 128)
INT8_MAX = np.float32(127)
HALF_ULP = 2.0**-24  # of float32, relative: one rounding
HALF_OF_LEAST = 2.0**-150  # of the numbers of float32 above 0
TINY = 2.0**-120  # 127 / amax overflows for smaller amax: integers say nothing of the block
FLOAT16_HALF_ULP, FLOAT16_TINY = 2.0**-11, 2.0**-25  # relative; absolute, below the normal numbers


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The node's attributes, checked."""

    inner: int
    columns: int
    bits: int
    block: int
    accuracy: int

    @property
    def blocks(self) -> int:
        """Blocks of a column; the last one may be padded."""
        return -(-self.inner // self.block)


@op.register_integer
class MatMulNBits(op.IntegerOperator):
    """Y[..., n] = sum_k A[..., k] W[n, k] + bias[n], W = (B - zero_points) * scales per block of k.

    com.microsoft: inputs A (float32 or float16), B (uint8: (N, blocks, block_size * bits / 8), low
    bits first), scales (N * blocks), zero_points (integers packed like a row of B, or of A's type;
    absent: 2^(bits - 1)), g_idx (must be absent), bias.

    With accuracy_level 4, constant B and zero points of uint8, each block of a row becomes int8,
    rint(a * (127 / amax)) at scale amax / 127 (2 bits: for blocks of 32, 64 and 128 only); else A
    and W are float32. That is what x86 with AVX2 or more does.

    ONNX Runtime adds in an order of its own, so that results are compared within `bound`.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        """A B, summed in float64 and rounded to A's type once."""
        a, w, _ = _operands(call)
        y = a @ w.T + _bias(call)
        with np.errstate(over="ignore"):
            return (np.asarray(y.astype(np.float32)).astype(call.operand(0, "A").dtype),)

    def bound(self, call: op.IntegerCall) -> op.Array | None:
        """(6 + min(n, 2 sqrt(n))) * 2^-24 * (sum_k |a| |w| + |bias|) + 2^-150 * underflow.

        |w| = (q + |zero_point|) * scale: ONNX Runtime subtracts zero points after it has summed, so
        that |w| counts both parts. n additions: K, or 2 of each block where A is int8 (sums within
        a block are exact). Their rounding errors are n at most, and in any order grow as sqrt(n)
        (Higham and Mary, 2019, "A New Approach to Probabilistic Rounding Error Analysis"), with a
        standard deviation below sqrt(n / 3). 6 stands for the roundings of zero
        point times scale, of the scales' product, of the term, of the bias's sum and of each
        result. float16 results are rounded once more.

        underflow = sum_k |a| + 127 K 2^(bits + 1): a product of scales, or of a scale and an
        integer, that is below the normal float32 numbers loses half of the smallest number, and
        multiplies what the integers add up to. Blocks of A below 2^-120 count as noise, and so does
        what fills up the last one: 0 / amax is no number there. Shape of Y.
        """
        a, w, magnitude = _operands(call)
        sizes = _sizes(call)
        additions = 2 * sizes.blocks if _is_int8(call, sizes) else sizes.inner
        rounded = 6 + min(additions, 2 * np.sqrt(additions))
        total = np.abs(a) @ magnitude.T + np.abs(_bias(call))
        largest = INT8_MAX * sizes.inner * 2.0 ** (sizes.bits + 1)
        underflow = np.abs(a).sum(axis=-1, keepdims=True) + largest
        noise = magnitude.sum(axis=1) + _padding(call, sizes)
        found = total * (rounded * HALF_ULP) + 2 * TINY * noise
        found = found + HALF_OF_LEAST * underflow
        if call.operand(0, "A").dtype == np.float16:
            y = np.abs(a @ w.T + _bias(call)) + found
            found = found + 2 * (FLOAT16_HALF_ULP * y + FLOAT16_TINY)  # each rounds for itself
        return np.asarray(found)

    def cases(self) -> Iterable[op.Case]:
        rows, inner, columns = 3, 70, 5
        a = normal(rows, inner)
        for bits in BITS:
            for block in (16, 32, 128):
                blocks = -(-inner // block)
                b = integers(columns, blocks, block * bits // 8)
                scale = np.abs(normal(columns * blocks)) + np.float32(0.1)
                packed = integers(columns * -(-blocks * bits // 8), seed=1)
                for level in (0, INT8_ACCURACY):
                    attributes: dict[str, op.AttributeValue] = {
                        "K": inner,
                        "N": columns,
                        "bits": bits,
                        "block_size": block,
                        "accuracy_level": level,
                    }
                    name = f"{bits} bits, blocks of {block}, level {level}"
                    yield op.Case(name, (a, b, scale), (1, 2), attributes)
                    points = (a, b, scale, packed)
                    yield op.Case(f"{name}, zero points", points, (1, 2, 3), attributes)
                    if bits < 8:  # ONNX Runtime has float zero points for 2 and 4 bits only
                        reals = (a, b, scale, np.abs(normal(columns * blocks, seed=1)))
                        yield op.Case(f"{name}, float zero points", reals, (1, 2, 3), attributes)
        sizes: dict[str, op.AttributeValue] = {"K": 32, "N": 4, "bits": 4, "block_size": 16}
        b, scale = integers(4, 2, 8), np.abs(normal(4, 2)) + np.float32(0.1)
        yield op.Case("negative scales", (normal(3, 32), b, -scale), (1, 2), sizes)
        bias = (None, None, normal(4))
        yield op.Case("bias, batches", (normal(2, 3, 32), b, scale, *bias), (1, 2, 5), sizes)
        yield op.Case("no row", (normal(0, 32), b, scale), (1, 2), sizes)


def _sizes(call: op.IntegerCall) -> _Sizes:
    """Raises ShapeError where K, N, bits or block_size is none that ONNX Runtime takes."""
    sizes = _Sizes(
        call.integer("K", 0),
        call.integer("N", 0),
        call.integer("bits", 4),
        call.integer("block_size", 0),
        call.integer("accuracy_level", 0),
    )
    power = sizes.block >= MIN_BLOCK and sizes.block & (sizes.block - 1) == 0
    if sizes.inner < 1 or sizes.columns < 1 or sizes.bits not in BITS or not power:
        raise call.shape_error(
            f"K {sizes.inner}, N {sizes.columns}, bits {sizes.bits}, block_size "
            f"{sizes.block}; wanted K and N from 1, bits 2, 4 or 8, and a power of 2 from 16."
        )
    return sizes


def _is_int8(call: op.IntegerCall, sizes: _Sizes) -> bool:
    """Whether ONNX Runtime quantizes A to int8 per block."""
    points = call.optional(3)
    return (
        sizes.accuracy == INT8_ACCURACY
        and (points is None or points.dtype == np.uint8)
        and (sizes.bits != 2 or sizes.block in INT8_BLOCKS_OF_2_BITS)
    )


def _bias(call: op.IntegerCall) -> op.Reals:
    """float64 (N,), or 0 where it is absent."""
    bias = call.optional(5)
    return np.zeros((), np.float64) if bias is None else bias.astype(np.float64)


def _operands(call: op.IntegerCall) -> tuple[op.Reals, op.Reals, op.Reals]:
    """A (..., K) and W (N, K) as they are multiplied, and |w| of `bound`, in float64."""
    sizes = _sizes(call)
    a, b = call.operand(0, "A"), call.operand(1, "B")
    if a.dtype not in REALS or not a.ndim or a.shape[-1] != sizes.inner:
        raise call.shape_error(
            f"A is {a.dtype} of shape {a.shape}; wanted float32 or float16, (..., {sizes.inner})."
        )
    wanted = (sizes.columns, sizes.blocks, sizes.block * sizes.bits // 8)
    if b.dtype != np.uint8 or b.shape != wanted:
        raise call.shape_error(f"B is {b.dtype} of shape {b.shape}; wanted uint8, {wanted}.")
    for slot, name in ((2, "scales"), (5, "bias")):
        x = call.optional(slot)
        if x is not None and x.dtype != a.dtype:
            raise call.shape_error(f"{name} has dtype {x.dtype}, A {a.dtype}; make them equal.")
    bias = call.optional(5)
    if bias is not None and bias.shape != (sizes.columns,):
        raise call.shape_error(f"bias of shape {bias.shape}; wanted ({sizes.columns},).")
    groups = call.optional(4)
    if groups is not None:
        raise UnsupportedError(
            f"{call.op_type}: g_idx ({groups.dtype}) is given. ONNX Runtime 1.31 contradicts "
            "itself with it: blocks in their order give another result than none. Reorder A's "
            "columns instead."
        )
    places = np.arange(sizes.inner) // sizes.block
    scale, points = _scales(call, sizes), _zero_points(call.optional(3), a.dtype, sizes)
    q = unpacked_rows(b.reshape(sizes.columns, -1).astype(np.uint8, copy=False), sizes.bits)[
        :, : sizes.inner
    ]
    centred = q.astype(np.float32) - points[:, places]
    reals = np.asarray(a, np.float32)
    steps = scale[:, places]
    magnitude = (q.astype(np.float64) + np.abs(points[:, places])) * np.abs(steps)
    if _is_int8(call, sizes):
        return _as_int8(reals, sizes), centred.astype(np.float64) * steps, magnitude
    return reals.astype(np.float64), (centred * steps).astype(np.float64), magnitude


def _padding(call: op.IntegerCall, sizes: _Sizes) -> op.Reals:
    """Most of sum_k |w| over what fills up the last block, (N,)."""
    points = _zero_points(call.optional(3), call.operand(0, "A").dtype, sizes)[:, -1]
    most = (1 << sizes.bits) + np.abs(points.astype(np.float64))
    count = sizes.blocks * sizes.block - sizes.inner
    return np.asarray(count * most * np.abs(_scales(call, sizes)[:, -1]))


def _scales(call: op.IntegerCall, sizes: _Sizes) -> npt.NDArray[np.float32]:
    """float32 (N, blocks)."""
    scale = call.operand(2, "scales")
    wanted = (sizes.columns, sizes.blocks)
    if scale.shape not in (wanted, (sizes.columns * sizes.blocks,)):
        raise call.shape_error(f"scales have shape {scale.shape}; wanted {wanted}, flat or not.")
    scales = np.asarray(scale, np.float32).reshape(wanted)
    if not np.isfinite(scales).all():
        raise call.shape_error("scales hold NaN or Inf.")
    return scales


def _zero_points(
    points: op.Array | None, dtype: np.dtype[np.generic], sizes: _Sizes
) -> npt.NDArray[np.float32]:
    """float32 (N, blocks), or (1, blocks) where they are absent."""
    if points is None:
        return np.full((1, sizes.blocks), 1 << (sizes.bits - 1), np.float32)
    count = sizes.columns * sizes.blocks
    row = -(-sizes.blocks * sizes.bits // 8)
    if points.dtype == np.uint8 and points.size == sizes.columns * row:
        packed = points.reshape(sizes.columns, row).astype(np.uint8, copy=False)
        return unpacked_rows(packed, sizes.bits)[:, : sizes.blocks].astype(np.float32)
    if points.dtype != dtype or points.size != count:
        raise ShapeError(
            f"{OP}: zero_points is {points.dtype} of shape {points.shape}; wanted uint8, "
            f"{sizes.columns} rows of {row} bytes, or {dtype}, {count} numbers."
        )
    if sizes.bits == 8:
        raise UnsupportedError(
            f"{OP}: zero_points is {points.dtype} with 8 bits; ONNX Runtime has uint8 only there."
        )
    return points.astype(np.float32).reshape(sizes.columns, sizes.blocks)


def _as_int8(a: npt.NDArray[np.float32], sizes: _Sizes) -> op.Reals:
    """A's rows, rounded as when each block is int8 at its own scale."""
    width = sizes.blocks * sizes.block
    padding = [(0, 0)] * (a.ndim - 1) + [(0, width - sizes.inner)]
    blocks = np.pad(a, padding).reshape(*a.shape[:-1], sizes.blocks, sizes.block)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):  # see TINY
        steps = np.divide(INT8_MAX, largest, out=np.zeros_like(largest), where=largest > 0)
        q = quantize(blocks * steps, per_tensor(1.0, 0, INT8))
        reals = q.astype(np.float64) * np.asarray(largest / INT8_MAX)
    return np.asarray(reals.reshape(*a.shape[:-1], width)[..., : sizes.inner])
