"""Rows of a lookup table in groups of 2, 4 or 8 bits, dequantized as they are picked."""

import math
from collections.abc import Iterable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnxq import operator as op
from onnxq.core.packing import unpacked_rows
from onnxq.errors import ShapeError
from onnxq.operator.examples import normal
from onnxq.operator.site import MICROSOFT
from onnxq.operators._linear import REALS

OP = "GatherBlockQuantized"
INT4, UINT4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
TYPES = (INT4, UINT4, np.dtype(np.uint8))
BYTE_BITS, NIBBLE_BITS = 8, 4  # bits
MIN_BLOCK = 16


@op.register_integer
class GatherBlockQuantized(op.IntegerOperator):
    """Y = ((data - zero_points) * scales)[indices], a scale per block of the last axis.

    com.microsoft: inputs data (int4, uint4, or uint8 of one, two or four integers, low bits first),
    indices, scales, zero_points (absent: 0; of uint8, 2^(bits - 1)). gather_axis must be 0 and
    quantize_axis the last one here, as in every table that is picked by rows.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        """Reals of scales' type."""
        data, indices, scales = (call.operand(slot, "input") for slot in range(3))
        bits, block = call.integer("bits", NIBBLE_BITS), call.integer("block_size", 128)
        _check(call, data, bits, block)
        table = _integers(data, bits)
        blocks = (*table.shape[:-1], -(-table.shape[-1] // block))
        if scales.shape != blocks:
            raise call.shape_error(f"scales of shape {scales.shape}; wanted {blocks}.")
        if scales.dtype not in REALS:
            raise call.shape_error(f"scales are {scales.dtype}; wanted float32 or float16.")
        factors = scales.astype(np.float32)
        if not np.isfinite(factors).all():
            raise call.shape_error("scales hold NaN or Inf.")
        points = _points(call.optional(3), data.dtype, bits, blocks)
        if indices.dtype not in (np.int32, np.int64):
            raise call.shape_error(f"indices of dtype {indices.dtype}; wanted int32 or int64.")
        rows = len(table)
        if indices.size and not (-rows <= indices.min() and indices.max() < rows):
            raise call.shape_error(f"indices beyond the table's {rows} rows.")
        picked = indices.astype(np.intp)

        places = np.arange(table.shape[-1]) // block
        centred = (table[picked] - points[picked][..., places]).astype(np.float32)
        return (np.asarray(centred * factors[picked][..., places]).astype(scales.dtype),)

    def cases(self) -> Iterable[op.Case]:
        generator = np.random.default_rng(0)
        ids = np.array([[0, 4], [-1, 2]])
        signed = generator.integers(-8, 8, (5, 40)).astype(INT4)
        scales = np.abs(normal(5, 3)) + np.float32(0.01)
        sizes: dict[str, op.AttributeValue] = {"block_size": 16, "quantize_axis": 1}
        points = generator.integers(-8, 8, (5, 3)).astype(INT4)
        yield op.Case("int4", (signed, ids, scales), (0, 2), sizes)
        yield op.Case("int4, zero points", (signed, ids, scales, points), (0, 2, 3), sizes)
        yield op.Case("negative scales", (signed, ids, -scales), (0, 2), sizes)
        unsigned = generator.integers(0, 16, (5, 40)).astype(UINT4)
        yield op.Case("uint4", (unsigned, ids, scales), (0, 2), sizes)
        points = generator.integers(0, 16, (5, 3)).astype(UINT4)
        yield op.Case("uint4, zero points", (unsigned, ids, scales, points), (0, 2, 3), sizes)
        bytes_ = generator.integers(0, 256, (5, 40)).astype(np.uint8)
        yield op.Case("uint8", (bytes_, ids, scales), (0, 2), {**sizes, "bits": 8})
        points = generator.integers(0, 256, (5, 3)).astype(np.uint8)
        eight = {**sizes, "bits": 8}
        yield op.Case("uint8, zero points", (bytes_, ids, scales, points), (0, 2, 3), eight)
        yield op.Case("two integers a byte", (bytes_[:, :20], ids, scales), (0, 2), sizes)
        two: dict[str, op.AttributeValue] = {**sizes, "bits": 2}
        yield op.Case("four integers a byte", (bytes_[:, :10], ids, scales), (0, 2), two)
        packed = (bytes_[:, :10], ids, scales, bytes_[:, :1])
        yield op.Case("four integers a byte, zero points", packed, (0, 2, 3), two)
        one: dict[str, op.AttributeValue] = {"block_size": 64, "quantize_axis": 1}
        yield op.Case("a block per row", (signed, ids.astype(np.int32), scales[:, :1]), (0, 2), one)
        stack = generator.integers(-8, 8, (4, 3, 32)).astype(INT4)
        attributes = {**sizes, "quantize_axis": 2}
        deep = np.abs(normal(4, 3, 2)) + np.float32(0.01)
        yield op.Case("three axes", (stack, np.array([3, 0]), deep), (0, 2), attributes)
        yield op.Case("one index", (signed, np.array(3), scales), (0, 2), sizes)


def _check(call: op.IntegerCall, data: op.Array, bits: int, block: int) -> None:
    """Raises ShapeError where the attributes do not fit the table."""
    if data.dtype not in TYPES or data.ndim < 2:
        raise call.shape_error(
            f"data is {data.dtype} of shape {data.shape}; wanted int4, uint4 or "
            "uint8 of two axes or more."
        )
    if block < MIN_BLOCK or block & (block - 1):
        raise call.shape_error(f"block_size {block}; wanted a power of two of at least 16.")
    if bits != NIBBLE_BITS and not (bits in (2, BYTE_BITS) and data.dtype == np.uint8):
        raise call.shape_error(f"bits {bits} of {data.dtype}; wanted 4, or 2 or 8 of uint8.")
    gathered = call.integer("gather_axis", 0) % data.ndim
    quantized = call.integer("quantize_axis", 1) % data.ndim
    if (gathered, quantized) != (0, data.ndim - 1):
        raise call.shape_error(
            f"gather_axis {gathered}, quantize_axis {quantized} of {data.ndim} "
            "axes; wanted the first and the last one."
        )


def _integers(data: op.Array, bits: int) -> npt.NDArray[np.int32]:
    """One number per integer; bytes of uint8 hold several where they have fewer bits."""
    if data.dtype != np.uint8:
        return data.astype(np.int32)
    *outer, width = data.shape
    rows = unpacked_rows(data.reshape(math.prod(outer), width).astype(np.uint8), bits)
    return rows.reshape(*outer, rows.shape[-1]).astype(np.int32)


def _points(
    given: op.Array | None, dtype: np.dtype[np.generic], bits: int, shape: tuple[int, ...]
) -> npt.NDArray[np.int32]:
    """Zero points as numbers, one per block."""
    if given is None:
        middle = 1 << (bits - 1) if dtype == np.uint8 else 0
        return np.full(shape, middle, np.int32)
    fits = given.dtype == dtype and given.ndim == len(shape)
    points = _integers(given, bits)[..., : shape[-1]] if fits else None
    if points is None or points.shape != shape:
        raise ShapeError(
            f"{OP}: zero_points are {given.dtype} of shape {given.shape}; wanted {dtype}, one for "
            f"each of the scales {shape}."
        )
    return points
