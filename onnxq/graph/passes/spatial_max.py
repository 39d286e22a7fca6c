"""The maximum over space becomes MaxPool, which ONNX Runtime runs beside convolutions of integers.

Behind a QLinearConv, integers lie channels last. ONNX Runtime has MaxPool for that, and neither
GlobalMaxPool nor a fast ReduceMax: 64 channels of 32 x 32 take 7 us in place of 42 (ReduceMax on
integers) or 26 (GlobalMaxPool in float, conversions included). In float both pools take as long.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes
from onnxq.graph.passes.global_pool import flatten_behind, is_channels_first
from onnxq.graph.passes.reductions import axes_of

_RANKS = (3, 4, 5)  # (N, C, spatial...): ONNX Runtime has MaxPool for 1 to 3 spatial axes
_REDUCTION, _POOL = "ReduceMax", "GlobalMaxPool"


class SpatialMaxToPool(ir.passes.InPlacePass):
    """ReduceMax(x, axes=2..rank-1) = GlobalMaxPool(x) = MaxPool<kernel_shape=x.shape[2:]>(x).

    Then Flatten(axis=1) where keepdims=0. All graphs. The spatial sizes of x and its type (float32)
    must be known, axes constant; what a ReduceMax reads has to come from a node that has its
    channels first. The result keeps its name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replaces all that match."""
        names: FreeNames | None = None
        for node in all_nodes(model):
            kernel = _kernel(node)
            if kernel is None:
                continue
            names = names or FreeNames(model)
            keeps = node.op_type == _POOL or bool(node.attributes.get_int("keepdims", 1))
            node.op_type = "MaxPool"
            node.attributes.clear()
            node.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", kernel)
            node.resize_inputs(1)
            if not keeps:
                flatten_behind(node, names)
        return ir.passes.PassResult(model, modified=names is not None)


def _kernel(node: ir.Node) -> list[int] | None:
    """Sizes of all of space, where the node takes the maximum over it; None: it does not."""
    if node.domain or node.op_type not in (_REDUCTION, _POOL):
        return None
    x = node.inputs[0]
    if x is None or x.shape is None or x.dtype != ir.DataType.FLOAT or len(x.shape) not in _RANKS:
        return None
    over_space = node.op_type == _POOL or axes_of(node) == tuple(range(2, len(x.shape)))
    if not over_space or not (node.op_type == _POOL or is_channels_first(x)):
        return None
    sizes = [size for size in x.shape[2:] if isinstance(size, int) and size > 0]
    return sizes if len(sizes) == len(x.shape) - 2 else None
