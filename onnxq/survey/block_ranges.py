"""Ranges of weights in blocks: the integers, scales and zero points of rows, read from the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.core.packing import unpacked_rows
from onnxq.operator.nodes import find_input
from onnxq.ort.node_kinds import PRODUCT_OF_BLOCKS, ROWS_OF_BLOCKS

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array, Reals
    from onnxq.qparams import QParams

INTEGERS = {PRODUCT_OF_BLOCKS: 1, ROWS_OF_BLOCKS: 0}
"""Operator of weights in blocks -> slot of its integers."""
SCALES, ZERO_POINTS, ORDER = 2, 3, 4
"""Slots of both; g_idx, which gives blocks another order, is MatMulNBits' alone."""
DEFAULT_BITS = 4
BLOCK = {PRODUCT_OF_BLOCKS: 0, ROWS_OF_BLOCKS: 128}
"""Block size where the attribute is left out."""


@dataclass(frozen=True, eq=False)
class RowsInBlocks:
    """A weight as rows of blocks.

    w[r, k] = (integers[r, k] - points[r, b]) * scales[r, b], b = k // size

    Attributes:
        integers: integers (rows, inner).
        scales: (rows, blocks), blocks = ceil(inner / size); below 0, too.
        points: (rows, blocks), whole or real.
        size: elements of a block.
        ends: (lowest integer, highest integer).
    """

    integers: Array
    scales: Reals
    points: Reals
    size: int
    ends: tuple[int, int]

    @property
    def words(self) -> str:
        """How many scales there are, and from which one to which."""
        sizes = np.abs(self.scales)
        return (
            f"blocks of {self.size}: {sizes.size:,} scales, {sizes.min():.2g} to {sizes.max():.2g}"
        )

    @property
    def ranges(self) -> tuple[Reals, Reals, Reals]:
        """(smallest real, largest real, largest real that a code of its blocks is) of each row."""
        starts = np.arange(0, self.integers.shape[1], self.size)
        ends = [
            (choose.reduceat(self.integers, starts, axis=1) - self.points) * self.scales
            for choose in (np.minimum, np.maximum)
        ]
        reach = np.abs([(end - self.points) * self.scales for end in self.ends]).max(0)
        return np.minimum(*ends).min(1), np.maximum(*ends).max(1), reach.max(1)


def rows_of_qparams(integers: Array, qparams: QParams, axis: int, size: int) -> RowsInBlocks:
    """Rows along the axis of blocks of integers that DequantizeLinear reads.

    Args:
        integers: of any shape.
        qparams: PerBlock along that axis.
        axis: of the blocks.
        size: of a block.
    """

    def rows(values: Array) -> Array:
        moved = np.moveaxis(values, axis, -1)
        return moved.reshape(-1, moved.shape[-1])

    scales, points = (rows(v).astype(np.float64) for v in (qparams.scale, qparams.zero_point))
    ends = qparams.dtype.qmin, qparams.dtype.qmax
    return RowsInBlocks(rows(integers).astype(np.int32), scales, points, size, ends)


def rows_of_node(node: ir.Node) -> RowsInBlocks | None:
    """Rows of an operator's weight in blocks; None: they are computed, or in another order.

    Args:
        node: of an operator in INTEGERS.
    """
    integers, scales = (_array(node, slot) for slot in (INTEGERS[node.op_type], SCALES))
    if integers is None or scales is None or find_input(node, ORDER) is not None:
        return None
    if find_input(node, ZERO_POINTS) is not None and _array(node, ZERO_POINTS) is None:
        return None
    bits, rows = int(node.attributes.get_int("bits", DEFAULT_BITS)), integers.shape[0]
    size = int(node.attributes.get_int("block_size", BLOCK[node.op_type]))
    packed = integers.dtype == np.uint8
    wide = integers.reshape(rows, -1)
    found = unpacked_rows(wide.astype(np.uint8), bits) if packed else wide
    inner = int(node.attributes.get_int("K", found.shape[1]))
    graph_qparams = scales.astype(np.float64).reshape(rows, -1)
    lowest = 0 if packed or str(integers.dtype).startswith("uint") else -(1 << (bits - 1))
    ends = (lowest, lowest + (1 << bits) - 1)
    points = np.broadcast_to(np.float64(1 << (bits - 1) if packed else 0), graph_qparams.shape)
    if (given := _array(node, ZERO_POINTS)) is not None:
        points = _points(given, graph_qparams.shape, bits)
    return RowsInBlocks(found[:, :inner].astype(np.int32), graph_qparams, points, size, ends)


def _points(given: Array, shape: tuple[int, ...], bits: int) -> Reals:
    """Zero points (rows, blocks): numbers, or integers packed row by row."""
    if given.dtype != np.uint8 or (bits == 8 and given.size == shape[0] * shape[1]):
        return given.astype(np.float64).reshape(shape)
    packed = given.reshape(shape[0], -1).astype(np.uint8)
    return unpacked_rows(packed, bits)[:, : shape[1]].astype(np.float64)


def _array(node: ir.Node, slot: int) -> Array | None:
    value = find_input(node, slot)
    return None if value is None or value.const_value is None else value.const_value.numpy()
