"""Largest values of the channels of activations beside the range that they share.

A tensor of activations has one scale. Where one of its channels is far wider than the others, that
channel takes the range of all, and the rest are left with few integers. The error that this makes
is small beside the widest channel, and so no SQNR shows it; nodes behind may weigh channels
otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.graph.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

    from onnxq.core.arrays import Reals
    from onnxq.qparams import QParams

MOST_HOPS = 3
"""Nodes between a tensor and the layer that tells which of its axes are channels."""


def channel_axes(source: ir.Model) -> dict[str, int]:
    """Name of each tensor near a layer with weights -> axis of its channels."""
    found: dict[str, int] = {}
    for node, _ in walk(source.graph):
        rule = catalog.rule_of(node)
        if rule is None or not rule.pair_axes or not _has_weights(node):
            continue
        axis = 1 if len(rule.pair_axes) > 1 else -1
        turned = node.attributes.get("transA")
        transposed = axis == -1 and turned is not None and turned.as_int() == 1
        for value in _back(node.inputs[0], MOST_HOPS):
            found.setdefault(str(value.name), 0 if transposed else axis)
        for value in _on(node.outputs[0], MOST_HOPS):
            found.setdefault(str(value.name), axis)
    return found


def channel_maxima(values: Reals, axis: int) -> Reals:
    """Largest absolute value of each channel."""
    found: Reals = np.abs(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)).max(1)
    return found


def median_share(maxima: Reals, qparams: QParams) -> float | None:
    """Share of the range that the median channel takes; None: fewer than two have a value.

    median over channels of max |T| / max |what the integers reach|, at most 1
    """
    seen = maxima[maxima > 0]
    if len(seen) < 2:
        return None
    zero, scale, dtype = int(qparams.zero_point), float(qparams.scale), qparams.dtype
    whole = max(dtype.qmax - zero, zero - dtype.qmin) * scale
    return min(float(np.median(seen)) / whole, 1.0)


def _has_weights(node: ir.Node) -> bool:
    return any(value is not None and value.is_initializer() for value in node.inputs[1:2])


def _back(value: ir.Value | None, hops: int) -> Iterator[ir.Value]:
    """The value, and what it was made of by nodes that leave channels where they are."""
    while value is not None:
        yield value
        node = value.producer()
        if node is None or hops == 0 or not _keeps_channels(node):
            return
        value, hops = node.inputs[0], hops - 1


def _on(value: ir.Value, hops: int) -> Iterator[ir.Value]:
    """The value, and what nodes that leave channels where they are make of it."""
    yield value
    if hops:
        for node in value.consumers():
            if _keeps_channels(node):
                yield from _on(node.outputs[0], hops - 1)


def _keeps_channels(node: ir.Node) -> bool:
    """Whether it neither moves data nor mixes channels, as a Relu or a pool of windows."""
    rule = catalog.rule_of(node)
    if rule is None or rule.pair_axes or catalog.moves_data(node):
        return False
    read, given = node.inputs[0], node.outputs[0]
    return read is not None and _rank(read) == _rank(given) is not None


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else value.shape.rank()
