"""Reductions over space become the pools that ONNX Runtime runs in integers or beside them."""

import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of
from onnxq.graph.origins import move
from onnxq.graph.passes.formulas import producer_of
from onnxq.graph.passes.reductions import axes_of
from onnxq.operator.nodes import input_at

# --- The maximum over space becomes MaxPool, which ONNX Runtime runs beside convolutions of
#     integers
#
# Behind a QLinearConv, integers lie channels last. ONNX Runtime has MaxPool for that, and neither
# GlobalMaxPool nor a fast ReduceMax: 64 channels of 32 x 32 take 7 us in place of 42 (ReduceMax on
# integers) or 26 (GlobalMaxPool in float, conversions included). In float both pools take as long.


_REDUCTION, _POOL = "ReduceMax", "GlobalMaxPool"


class SpatialMaxToPool(ir.passes.InPlacePass):
    """ReduceMax(x, axes=2..rank-1) = GlobalMaxPool(x) = MaxPool<kernel_shape=x.shape[2:]>(x).

    Then Flatten(axis=1) where keepdims=0. All graphs. The spatial sizes of x and its type (float32)
    must be known, axes constant; what a ReduceMax reads has to come from a node that has its
    channels first. The result keeps its name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        names: FreeNames | None = None
        for node in all_nodes(model):
            kernel = _kernel(node)
            if kernel is None:
                continue
            names = names or FreeNames(model)
            _become(node, "MaxPool", names)
            node.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", kernel)
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


# --- ReduceMean over space becomes GlobalAveragePool, which ONNX Runtime runs in integers


_RANKS = (3, 4, 5)  # (N, C, spatial...): ONNX Runtime has the kernel for 1 to 3 spatial axes
_SEQUENCE = 3  # (N, C, T) of a convolution, or (N, T, D) of a transformer
_CHANNELS_FIRST = frozenset(
    (
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "GroupNormalization",
        "InstanceNormalization",
        "MaxPool",
    )
)
_SAME_LAYOUT = frozenset(
    ("Add", "Clip", "Elu", "HardSwish", "LeakyRelu", "Mul", "PRelu", "Relu", "Sigmoid", "Tanh")
)
"""Operators whose result has its channels where the first operand has them."""
_FARTHEST = 8  # nodes of the same layout between a convolution and the mean


class MeanToGlobalPool(ir.passes.InPlacePass):
    """ReduceMean(x, axes=2..rank-1) = GlobalAveragePool(x), then Flatten(axis=1) where keepdims=0.

    All graphs. Rank and type (float32) of x must be known, the axes constant. A tensor of rank 3
    has to come from a node that has its channels first, such as a Conv; of (N, T, D) it would be
    the mean of a normalization. A mean that is taken from x itself stays. The result keeps its
    name.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        names: FreeNames | None = None
        for node in all_nodes(model):
            if not _is_spatial_mean(node):
                continue
            names = names or FreeNames(model)
            _become(node, "GlobalAveragePool", names)
        return ir.passes.PassResult(model, modified=names is not None)


def _is_spatial_mean(node: ir.Node) -> bool:
    if node.op_type != "ReduceMean" or node.domain:
        return False
    x = node.inputs[0]
    if x is None or x.shape is None or x.dtype != ir.DataType.FLOAT:
        return False
    rank = len(x.shape)
    if rank not in _RANKS or axes_of(node) != tuple(range(2, rank)):
        return False
    mean = node.outputs[0]
    if any((r.op_type, *r.inputs) == ("Sub", x, mean) for r in mean.consumers()):
        return False  # a part of a normalization
    return rank != _SEQUENCE or is_channels_first(x)


def is_channels_first(x: ir.Value) -> bool:
    """Whether the value comes from a node that has its channels along axis 1, such as a Conv."""
    node = producer_of(x)
    for _ in range(_FARTHEST):
        if node is None or node.op_type not in _SAME_LAYOUT:
            break
        node = producer_of(node.inputs[0])
    return node is not None and node.op_type in _CHANNELS_FIRST


def _become(node: ir.Node, pool: str, names: FreeNames) -> None:
    """Makes a reduction a pool, and appends y = Flatten(pooled) where y had no axes of space."""
    keeps = node.op_type == _POOL or bool(node.attributes.get_int("keepdims", 1))
    node.op_type = pool
    node.attributes.clear()
    node.resize_inputs(1)
    if keeps:
        return
    x, y, graph = input_at(node, 0), node.outputs[0], graph_of(node)
    assert x.shape is not None
    name = names.node(f"{node.name}_flatten") if node.name else None
    flatten = ir.node("Flatten", [], {"axis": 1}, num_outputs=1, name=name)
    flatten.metadata_props.update(node.metadata_props)
    result = flatten.outputs[0]
    result.name, result.type, result.shape = y.name, ir.TensorType(ir.DataType.FLOAT), y.shape
    move(y, result)
    y.replace_all_uses_with(result, replace_graph_outputs=True)
    y.name = names.value(f"{y.name}_pooled")
    y.type = ir.TensorType(ir.DataType.FLOAT)
    y.shape = ir.Shape([x.shape[0], x.shape[1], *[1] * (len(x.shape) - 2)])
    flatten.resize_inputs(1)
    flatten.replace_input_with(0, y)
    graph.insert_after(node, flatten)
