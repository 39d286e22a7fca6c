"""Pools with ceil_mode for onnx's inference, which counts windows that ONNX leaves out.

By ONNX's formula a window that would start in the padding behind the input, or beyond it, is not
there; onnx's inference counts it where the strides skip elements. ONNX Runtime follows the formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POOLS = ("AveragePool", "LpPool", "MaxPool")
SPATIAL = 2  # the axis after batch and channels

Sizes = list[int | None]


def correct_ceil_mode(graph: onnx.GraphProto, shapes: Mapping[str, Sizes]) -> bool:
    """Rewrites pools of which onnx's inference told a wrong size; whether any was.

    The new attributes give the right size without ceil_mode; the graph is for inference only. What
    the graph stated of values behind such a pool is removed: it may come from the same inference.

    Args:
        graph: without its weights; changed.
        shapes: of its values, as inferred.
    """
    wrong: set[str] = set()
    _correct(graph, shapes, wrong)
    return bool(wrong)


def _correct(graph: onnx.GraphProto, shapes: Mapping[str, Sizes], wrong: set[str]) -> None:
    """Adds the names of all values whose sizes are not to be relied upon to `wrong`."""
    for node in graph.node:
        before = len(wrong)
        if node.op_type in POOLS and (out := _windows(node, shapes)) is not None:
            sizes = shapes[node.input[0]][SPATIAL:]
            inferred = shapes.get(node.output[0], [])[SPATIAL:]
            if any(None not in (n, m) and n != m for n, m in zip(out, inferred, strict=False)):
                _give_size(node, sizes, out)
                wrong.update(node.output)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _correct(attribute.g, shapes, wrong)
        if len(wrong) > before or wrong.intersection(node.input):
            wrong.update(node.output)
    for info in (*graph.value_info, *graph.output):
        if info.name in wrong:
            info.type.tensor_type.ClearField("shape")


def _windows(node: onnx.NodeProto, shapes: Mapping[str, Sizes]) -> Sizes | None:
    """Numbers of windows, None for unknown ones; None where the node is not one to look at."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    kernel, sizes = given.get("kernel_shape", []), shapes.get(node.input[0], [])[SPATIAL:]
    rank = len(kernel)
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    pads = given.get("pads") or [0] * 2 * rank
    fits = len(sizes) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    if not given.get("ceil_mode", 0) or not fits or min(strides, default=0) < 1:
        return None
    mode = given.get("auto_pad", b"NOTSET").decode()
    out: Sizes = []
    for i, (size, taps, stride) in enumerate(zip(sizes, kernel, strides, strict=True)):
        if size is None:
            out.append(None)
            continue
        before, behind = (0, 0) if mode == "VALID" else (pads[i], pads[rank + i])
        if mode.startswith("SAME"):
            behind = (-(-size // stride) - 1) * stride + taps - size
        room = size + before + behind - dilations[i] * (taps - 1) - 1
        last = room // stride
        out.append(last + 1 + (room % stride > 0 and (last + 1) * stride < size + before))
    return out


def _give_size(node: onnx.NodeProto, sizes: Sequence[int | None], out: Sizes) -> None:
    """Attributes with which windows one after the other are as many as `out` says."""
    taps = [max((n or 1) - (m or 1), 0) + 1 for n, m in zip(sizes, out, strict=True)]
    pads = [max((m or 1) - (n or 1), 0) for n, m in zip(sizes, out, strict=True)]
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("kernel_shape", taps))
    node.attribute.append(helper.make_attribute("pads", [0] * len(pads) + pads))
