"""Resize by `axes` becomes Resize of every axis."""

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.graph.edit import FreeNames, all_nodes, new_constant
from onnxq.graph.weights import constant
from onnxq.operator.nodes import has_input, input_at

_ROI, _SCALES, _SIZES = 1, 2, 3


class WriteAxesOut(ir.passes.InPlacePass):
    """Resize<axes>(x, scales) = Resize(x, scales of all axes); 1 and x's own sizes elsewhere.

    ONNX Runtime 1.31 moves the Transposes of its channels-last kernels through a Resize with
    `axes`, and then refuses the model that it made. All graphs; scales or sizes must be constant,
    for sizes those of x must be known. A region and a kept aspect ratio are left as they are.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        names: FreeNames | None = None
        for node in all_nodes(model):
            if node.domain or node.op_type != "Resize" or "axes" not in node.attributes:
                continue
            if (found := _of_all_axes(node)) is None:
                continue
            names = names or FreeNames(model)
            slot, values = found
            name = names.value(f"{node.outputs[0].name}_{'scales' if slot == _SCALES else 'sizes'}")
            node.replace_input_with(slot, new_constant(node, name, values))
            del node.attributes["axes"]
        return ir.passes.PassResult(model, modified=names is not None)


def _of_all_axes(node: ir.Node) -> tuple[int, Array] | None:
    """(slot, scales or sizes of all axes); None: they are not known, or mean something else."""
    shape = input_at(node, 0).shape
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if shape is None or has_input(node, _ROI) or policy != "stretch":
        return None
    slot = _SCALES if has_input(node, _SCALES) else _SIZES
    given = constant(node.inputs[slot]) if has_input(node, slot) else None
    if given is None:
        return None
    whole = [1] * len(shape) if slot == _SCALES else list(shape)
    for axis, value in zip(node.attributes.get_ints("axes"), given.numpy().tolist(), strict=True):
        whole[axis] = value
    known = [size for size in whole if isinstance(size, int | float)]
    dtype = np.float32 if slot == _SCALES else np.int64
    return (slot, np.array(known, dtype)) if len(known) == len(whole) else None
