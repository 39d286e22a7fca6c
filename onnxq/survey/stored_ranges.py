"""Ranges of weights that are stored as integers, channel by channel or row by row of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.checking.integers import SUFFIX
from onnxq.graph.walk import walk
from onnxq.page.content import WeightPart
from onnxq.qdq.read import Unread, is_constant, is_dequantize, qparams_from, qparams_of
from onnxq.qparams import PerBlock, PerChannel, groups
from onnxq.survey.block_ranges import (
    DEFAULT_BITS,
    INTEGERS,
    RowsInBlocks,
    rows_of_node,
    rows_of_qparams,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir

    from onnxq.core.arrays import Array, Reals
    from onnxq.qparams import QParams

LEAST_RANK, MOST_BITS = 2, 8
IN_BLOCKS = f"_{groups.INTEGERS}"
"""End of the name of integers in blocks."""


def stored_ranges(target: ir.Model, places: Mapping[str, int]) -> tuple[WeightPart, ...]:
    """Weights of a quantized model, in the order of its graph.

    Args:
        target: the quantized model.
        places: name of a node of the float model -> its place on the page.
    """
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
    """(integers, their grid, the node that reads them)."""
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
    """Grid of an operator's weight: the scales behind it, those per channel first."""
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
    lows, highs = _ends(integers, axis)
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


def _of_rows(name: str, place: int | None, dtype: str, rows: RowsInBlocks) -> WeightPart:
    lows, highs, reach = rows.ranges
    return WeightPart(name, place, dtype, rows.words, _floats(lows), _floats(highs), _floats(reach))


def _ends(integers: Array, axis: int) -> tuple[Reals, Reals]:
    """Least and largest integer of each channel."""
    rows = np.moveaxis(integers, axis, 0).reshape(integers.shape[axis], -1).astype(np.float64)
    return (rows.min(1), rows.max(1)) if rows.size else (np.zeros(0), np.zeros(0))


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.4g}") for value in values)


def _place(reader: ir.Node, places: Mapping[str, int]) -> int | None:
    """The float node that a node of the file carries out: the longest name that it begins with."""
    name = reader.name or ""
    while name and name not in places:
        name = name[: max(name.rfind("_"), name.rfind("/"), 0)]
    return places.get(name)
