"""Layouts of the tensors around a node, as its form and its neighbours decide them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from onnxq.graph.walk import value_name
from onnxq.operator import Precision
from onnxq.operator.nodes import is_constant
from onnxq.ort.layouts import BLOCK, CHANNELS_LAST, CONVOLUTION, FEW_CHANNELS, IN_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.graph.sizes import Sizes

IMAGE_RANK = 4


class Layout(enum.Enum):
    """Order of a tensor's numbers in memory."""

    PLAIN = "plain"
    """The model's own order: (N, C, H, W)."""
    BLOCKED = "blocked"
    """Blocks of channels, as float convolutions run."""
    CHANNELS_LAST = "channels last"
    """(N, H, W, C), as integer convolutions run."""


def layout_of(
    node: ir.Node, form: Precision, layouts: Sequence[Layout], sizes: Mapping[str, Sizes]
) -> tuple[Layout, Layout]:
    """(layout that the node reads, layout that it writes).

    Args:
        node: of the float model.
        form: that it takes.
        layouts: of its inputs that are no constants.
        sizes: of the values, by name.
    """
    if node.op_type == CONVOLUTION and is_constant(node, 1):
        weight = sizes.get(value_name(node.inputs[1]) if node.inputs[1] else "", ())
        if form is Precision.INT8:
            return Layout.CHANNELS_LAST, Layout.CHANNELS_LAST
        if not _runs_in_blocks(weight, int(node.attributes.get_int("group", 1))):
            return Layout.PLAIN, Layout.PLAIN
        few = weight[1] < FEW_CHANNELS and int(node.attributes.get_int("group", 1)) == 1
        return Layout.PLAIN if few else Layout.BLOCKED, Layout.BLOCKED
    same = Layout.PLAIN
    if form is Precision.INT8 and Layout.CHANNELS_LAST in layouts:
        if node.op_type in CHANNELS_LAST or _keeps_shape(node, sizes):
            same = Layout.CHANNELS_LAST
    elif form is not Precision.INT8 and set(layouts) == {Layout.BLOCKED}:
        operands = {sizes.get(value_name(v)) for v in node.inputs if v is not None}
        alone = len(layouts) == 1 or node.op_type in CHANNELS_LAST or len(operands) == 1
        if node.op_type in IN_BLOCKS and alone:
            same = Layout.BLOCKED
    return same, same


def _runs_in_blocks(weight: Sizes, group: int) -> bool:
    """Whether a float convolution of images runs on blocks of channels."""
    if len(weight) != IMAGE_RANK:
        return False
    channels, results = weight[1] * group, weight[0]
    return (
        group == 1
        or channels == results == group
        or (weight[1] % BLOCK == 0 and results // group % BLOCK == 0)
    )


def _keeps_shape(node: ir.Node, sizes: Mapping[str, Sizes]) -> bool:
    """Whether the node computes element by element: a result as large as an input, and no axes."""
    result = sizes.get(value_name(node.outputs[0]))
    alike = any(sizes.get(value_name(v)) == result for v in node.inputs if v is not None)
    return alike and not {"perm", "axis", "axes"} & set(node.attributes)
