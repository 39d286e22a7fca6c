"""Ranges of weights that are stored as integers, channel by channel or row by row of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.checking.integers import SUFFIX
from onnxq.core.arrays import Array, Reals
from onnxq.core.packing import unpacked_rows
from onnxq.graph.walk import stem_among, walk
from onnxq.operator.nodes import find_input
from onnxq.ort.node_kinds import GATHER_BLOCK_QUANTIZED, MATMUL_NBITS
from onnxq.page.content import WeightPart
from onnxq.qdq.read import Unread, is_constant, is_dequantize, qparams_from, qparams_of
from onnxq.qparams import PerBlock, PerChannel, QParams, groups

LEAST_RANK, MOST_BITS = 2, 8
IN_BLOCKS = f"_{groups.INTEGERS}"
"""End of the name of integers in blocks."""


def stored_ranges(target: ir.Model, places: Mapping[str, int]) -> tuple[WeightPart, ...]:
    """Weights of a quantized model, in the order of its graph."""
    found: dict[str, WeightPart] = {}
    for node, _ in walk(target.graph):
        if node.op_type in INTEGERS:
            part = _of_blocks(node, _place(node, places))
            found.setdefault(part.name, part)
            continue
        for value, qparams, reader in _weights_of(node):
            name = str(value.name)
            if name not in found:
                found[name] = _part(value, qparams, _place(reader, places))
    return tuple(found.values())


def _weights_of(node: ir.Node) -> Iterator[tuple[ir.Value, QParams | Unread, ir.Node]]:
    """(integers, their qparams, the node that reads them)."""
    if is_dequantize(node):
        integers = node.inputs[0]
        if integers is not None and is_constant(node) and _is_weight(integers):
            yield integers, qparams_of(node), next(iter(node.outputs[0].consumers()), node)
        return
    if not catalog.is_on_integers(node):
        return
    for slot, value in enumerate(node.inputs):
        if value is not None and value.is_initializer() and _is_weight(value):
            yield value, _qparams_behind(node, slot, value), node


def _is_weight(value: ir.Value) -> bool:
    tensor = value.const_value
    if tensor is None or not tensor.dtype.is_integer():
        return False
    return tensor.dtype.bitwidth <= MOST_BITS and len(tensor.shape) >= LEAST_RANK


def _qparams_behind(node: ir.Node, slot: int, weight: ir.Value) -> QParams | Unread:
    """QParams of an operator's weight: the scales behind it, those per channel first."""
    assert weight.const_value is not None
    shape = tuple(map(int, weight.const_value.shape.numpy()))
    scales = []
    for value in node.inputs[slot + 1 :]:
        tensor = None if value is None else value.const_value
        if tensor is not None and tensor.dtype.is_floating_point() and (tensor.numpy() > 0).all():
            scales.append((value, tensor.size))
    for axis in (len(shape) - 1, 0):
        for value, size in scales:
            if size == shape[axis] > 1:
                return qparams_from(value, None, weight.const_value.dtype, axis)
    single = [value for value, size in scales if size == 1]
    ahead = node.inputs[slot - 1] if slot else None
    if ahead is not None and not ahead.is_initializer():
        single = single[1:]  # both operands, then both scales: the first is the other operand's
    if not single:
        return Unread("its scale is computed behind it")
    return qparams_from(single[0], None, weight.const_value.dtype)


def _part(value: ir.Value, qparams: QParams | Unread, node: int | None) -> WeightPart:
    assert value.const_value is not None
    name, dtype = str(value.name).removesuffix(SUFFIX), value.const_value.dtype.name.lower()
    if isinstance(qparams, Unread):
        return WeightPart(name, node, dtype, qparams.reason, (), (), ())
    if isinstance(qparams.granularity, PerBlock):
        axis, size = qparams.granularity.axis, qparams.granularity.size
        rows = rows_of_qparams(value.const_value.numpy(), qparams, axis, size)
        return _of_rows(name.removesuffix(IN_BLOCKS), node, dtype, rows)
    integers, scale, axis = value.const_value.numpy(), qparams.scale, 0
    words = "one for all"
    if isinstance(qparams.granularity, PerChannel):
        axis = qparams.granularity.axis % integers.ndim
        words = f"{scale.size} channels of axis {axis}"
    lows, highs = _min_and_max(integers, axis)
    zero = np.broadcast_to(qparams.zero_point.astype(np.float64), lows.shape)
    scales = np.broadcast_to(scale.astype(np.float64), lows.shape)
    reach = np.maximum(qparams.dtype.qmax - zero, zero - qparams.dtype.qmin - 1) * scales
    return WeightPart(
        name,
        node,
        dtype,
        words,
        _floats((lows - zero) * scales),
        _floats((highs - zero) * scales),
        _floats(reach),
    )


def _of_blocks(node: ir.Node, place: int | None) -> WeightPart:
    """The weight of an operator on blocks."""
    integers = node.inputs[INTEGERS[node.op_type]]
    name = "" if integers is None else str(integers.name).removesuffix(IN_BLOCKS)
    dtype = f"{node.attributes.get_int('bits', DEFAULT_BITS)} bits"
    rows = rows_of_node(node)
    if rows is None:
        return WeightPart(name, place, dtype, "computed, or in an order of its own", (), (), ())
    return _of_rows(name, place, dtype, rows)


def _of_rows(name: str, place: int | None, dtype: str, rows: GroupwiseRows) -> WeightPart:
    lows, highs, reach = rows.ranges
    return WeightPart(name, place, dtype, rows.words, _floats(lows), _floats(highs), _floats(reach))


def _min_and_max(integers: Array, axis: int) -> tuple[Reals, Reals]:
    """Least and largest integer of each channel."""
    rows = np.moveaxis(integers, axis, 0).reshape(integers.shape[axis], -1).astype(np.float64)
    return (rows.min(1), rows.max(1)) if rows.size else (np.zeros(0), np.zeros(0))


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in values)


def _place(reader: ir.Node, places: Mapping[str, int]) -> int | None:
    """The float node that a node of the file carries out: the longest name that it begins with."""
    return places.get(stem_among(reader.name or "", places))


# --- Ranges of weights in blocks: the integers, scales and zero points of rows, read from the
#     file


INTEGERS = {MATMUL_NBITS: 1, GATHER_BLOCK_QUANTIZED: 0}
"""Operator of weights in blocks -> slot of its integers."""
SCALES, ZERO_POINTS, ORDER = 2, 3, 4
"""Slots of both; g_idx, which gives blocks another order, is MatMulNBits' alone."""
DEFAULT_BITS = 4
BLOCK = {MATMUL_NBITS: 0, GATHER_BLOCK_QUANTIZED: 128}
"""Block size where the attribute is left out."""


@dataclass(frozen=True, eq=False)
class GroupwiseRows:
    """A weight as rows of blocks.

    w[r, k] = (integers[r, k] - points[r, b]) * scales[r, b], b = k // size

    Attributes:
        integers: integers (rows, inner).
        scales: (rows, blocks), blocks = ceil(inner / size); below 0, too.
        points: (rows, blocks), whole or real.
        limits: (lowest integer, highest integer).
    """

    integers: Array
    scales: Reals
    points: Reals
    size: int
    limits: tuple[int, int]

    @property
    def words(self) -> str:
        """How many scales there are, and from which one to which."""
        sizes = np.abs(self.scales)
        return (
            f"groups of {self.size}: {sizes.size:,} scales, {sizes.min():.2g} to {sizes.max():.2g}"
        )

    @property
    def ranges(self) -> tuple[Reals, Reals, Reals]:
        """(smallest real, largest real, largest real that its blocks can hold) of each row."""
        starts = np.arange(0, self.integers.shape[1], self.size)
        limits = [
            (choose.reduceat(self.integers, starts, axis=1) - self.points) * self.scales
            for choose in (np.minimum, np.maximum)
        ]
        reach = np.abs([(limit - self.points) * self.scales for limit in self.limits]).max(0)
        return np.minimum(*limits).min(1), np.maximum(*limits).max(1), reach.max(1)


def rows_of_qparams(integers: Array, qparams: QParams, axis: int, size: int) -> GroupwiseRows:
    """Rows along the axis of blocks of integers that DequantizeLinear reads."""

    def rows(values: Array) -> Array:
        moved = np.moveaxis(values, axis, -1)
        return moved.reshape(-1, moved.shape[-1])

    scales, points = (rows(v).astype(np.float64) for v in (qparams.scale, qparams.zero_point))
    limits = qparams.dtype.qmin, qparams.dtype.qmax
    return GroupwiseRows(rows(integers).astype(np.int32), scales, points, size, limits)


def rows_of_node(node: ir.Node) -> GroupwiseRows | None:
    """Rows of an operator's weight in blocks; None: they are computed, or in another order."""
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
    scale = scales.astype(np.float64).reshape(rows, -1)
    lowest = 0 if packed or str(integers.dtype).startswith("uint") else -(1 << (bits - 1))
    limits = (lowest, lowest + (1 << bits) - 1)
    points = np.broadcast_to(np.float64(1 << (bits - 1) if packed else 0), scale.shape)
    if (given := _array(node, ZERO_POINTS)) is not None:
        points = _points(given, scale.shape, bits)
    return GroupwiseRows(found[:, :inner].astype(np.int32), scale, points, size, limits)


def _points(given: Array, shape: tuple[int, ...], bits: int) -> Reals:
    """Zero points (rows, blocks): numbers, or integers packed row by row."""
    if given.dtype != np.uint8 or (bits == 8 and given.size == shape[0] * shape[1]):
        return given.astype(np.float64).reshape(shape)
    packed = given.reshape(shape[0], -1).astype(np.uint8)
    return unpacked_rows(packed, bits)[:, : shape[1]].astype(np.float64)


def _array(node: ir.Node, slot: int) -> Array | None:
    value = find_input(node, slot)
    return None if value is None or value.const_value is None else value.const_value.numpy()
