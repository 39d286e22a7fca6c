"""Layer and root mean square normalization that an exporter wrote out become the operators."""

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Singles
from onnxq.graph.edit import FreeNames, all_nodes, graph_of
from onnxq.graph.origins import hand_on
from onnxq.graph.passes.formulas import line_of, number, only_reader, producer_of
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes
from onnxq.graph.passes.opset import raise_opset
from onnxq.graph.passes.reductions import Reduced, mean_of, mean_of_squares
from onnxq.graph.walk import is_read
from onnxq.graph.weights import constant
from onnxq.operator.nodes import find_input, has_input, input_at
from onnxq.operator.site import MICROSOFT

LAYER_OPSET, RMS_OPSET = 17, 23  # LayerNormalization's first, RMSNormalization's first
_ROOT = 1 / 2


class FuseLayerNormalization(ir.passes.InPlacePass):
    """c / sqrt(mean(c^2) + eps) gamma + beta = LayerNormalization(x) for c = x - mean(x).

    Means are over the last axes, and kept. Without gamma it is 1; without beta there is none. The
    same without the mean, x / sqrt(mean(x^2) + eps) gamma, is RMSNormalization(x). Written are

        c / s,    c (1 / s),    c r,    x r + (beta - mean(x) r),    r = (1 / s) gamma,

    s being the root; the square as c c, Pow(c, 2) or ReduceSumSquare; a mean as a sum over its
    count. gamma and beta are constants of the normalized axes; others stay nodes of their own.

    All graphs, float32 only, and only where nothing else reads a value in between. The opset is
    raised to 17, or 23, where it is lower. ONNX Runtime runs the operators at the speed of what it
    fuses of the nodes itself; a QuantizeLinear between them prevents that.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        layers = fuse_all(model, _layer, LAYER_OPSET)
        return ir.passes.PassResult(model, fuse_all(model, _root_mean_square, RMS_OPSET) or layers)


@dataclass(frozen=True, slots=True)
class _Deviation:
    """root = sqrt(mean(c^2) + epsilon) over the axes from `axis` on, of the given sizes.

    Attributes:
        x: what is normalized; c is x, or x - mean.
        is_centred: whether it is the latter.
        axis: counts from 0.
        epsilon: at least 0.
    """

    root: ir.Value
    x: ir.Value
    is_centred: bool
    axis: int
    sizes: tuple[int, ...]
    epsilon: float

    def is_numerator(self, value: ir.Value | None) -> bool:
        """Whether the value is c."""
        return _centred(value) == self._mean if self.is_centred else value is self.x

    def is_mean(self, value: ir.Value | None) -> bool:
        """Whether the value is the mean of x."""
        return mean_of(value) == self._mean

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes."""
        return tuple(range(self.axis, self.axis + len(self.sizes)))

    @property
    def _mean(self) -> Reduced:
        return Reduced(self.x, self.axes)

    def parameter(self, value: ir.Value | None) -> Singles | None:
        """The constant as an array of the sizes, where it varies along these axes alone."""
        tensor = constant(value)
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:
            return None
        shape = tuple(tensor.shape.numpy())
        kept = shape[max(0, len(shape) - len(self.sizes)) :]
        if len(shape) > self.axis + len(self.sizes) or math.prod(shape) != math.prod(kept):
            return None
        if any(
            size not in (1, whole)
            for size, whole in zip(kept[::-1], self.sizes[::-1], strict=False)
        ):
            return None
        return np.broadcast_to(tensor.numpy().reshape(kept), self.sizes).copy()


@dataclass(frozen=True, slots=True)
class _Normalized:
    """c / root * gamma + beta, the result of the node; None: not written, 1 and 0."""

    node: ir.Node
    gamma: Singles | None = None
    beta: Singles | None = None


def _layer(node: ir.Node) -> FusedNode | None:
    deviation = _deviation(node)
    mean = None if deviation is None else _centred(deviation.x)
    if deviation is None or mean is None or mean.axes != deviation.axes:
        return None
    centred = replace(deviation, x=mean.x, is_centred=True)
    return _fusion(centred, "LayerNormalization", _with_beta(centred, _normalized(centred)))


def _root_mean_square(node: ir.Node) -> FusedNode | None:
    deviation = _deviation(node)
    if deviation is None:
        return None
    return _fusion(deviation, "RMSNormalization", _normalized(deviation))


def _fusion(deviation: _Deviation, op_type: str, found: _Normalized | None) -> FusedNode | None:
    nodes = None if found is None else inner_nodes(found.node, {deviation.x})
    if found is None or nodes is None:
        return None
    gamma = np.ones(deviation.sizes, np.float32) if found.gamma is None else found.gamma
    inputs = [deviation.x, gamma] if found.beta is None else [deviation.x, gamma, found.beta]
    attributes = {"axis": -len(deviation.sizes), "epsilon": deviation.epsilon}
    return FusedNode(nodes, op_type, inputs, attributes)


def _deviation(node: ir.Node) -> _Deviation | None:
    """The deviation whose root the node takes: a mean of squares over the last axes."""
    if node.domain or not _is_root(node):
        return None
    line = line_of(producer_of(node.inputs[0]))
    if line is None or line.factor != 1.0 or line.offset < 0:
        return None
    mean = mean_of_squares(line.x)
    if mean is None or mean.x.dtype != ir.DataType.FLOAT or mean.x.shape is None:
        return None
    rank, axis = len(mean.x.shape), mean.axes[0]
    sizes = tuple(size for size in mean.x.shape[axis:] if isinstance(size, int))
    if mean.axes != tuple(range(axis, rank)) or len(sizes) != rank - axis:
        return None
    return _Deviation(node.outputs[0], mean.x, False, axis, sizes, line.offset)


def _is_root(node: ir.Node) -> bool:
    if node.op_type == "Sqrt":
        return True
    return node.op_type == "Pow" and number(node.inputs[1], node.inputs[0]) in (_ROOT, -_ROOT)


def _centred(value: ir.Value | None) -> Reduced | None:
    """The mean that is taken from its own tensor, where the value is x - mean(x)."""
    node = producer_of(value)
    if node is None or node.op_type != "Sub":
        return None
    mean = mean_of(node.inputs[1])
    return mean if mean is not None and node.inputs[0] is mean.x else None


def _normalized(deviation: _Deviation) -> _Normalized | None:
    """The product or quotient of c and the root, with gamma where it stands ahead or behind."""
    root = deviation.root
    node = root.producer()
    assert node is not None
    inverse, gamma = root, None
    if node.op_type != "Pow" or number(node.inputs[1]) == _ROOT:
        reader = only_reader(root)
        if reader is None or (reader.op_type == "Div" and reader.inputs[1] is not root):
            return None
        if reader.op_type == "Div" and deviation.is_numerator(reader.inputs[0]):
            return _with_gamma(deviation, _Normalized(reader))
        if reader.op_type not in ("Div", "Reciprocal"):
            return None
        if reader.op_type == "Div" and number(reader.inputs[0]) != 1.0:
            gamma = deviation.parameter(reader.inputs[0])
            if gamma is None:
                return None
        inverse = reader.outputs[0]
    return _product(deviation, inverse, gamma)


def _product(deviation: _Deviation, inverse: ir.Value, gamma: Singles | None) -> _Normalized | None:
    """C times the inverse of the root, which may be multiplied by gamma first."""
    reader = only_reader(inverse)
    if reader is not None and reader.op_type == "Mul" and gamma is None:
        gamma = deviation.parameter(_beside(reader, inverse))
        if gamma is not None:
            inverse, reader = reader.outputs[0], only_reader(reader.outputs[0])
    if reader is None:
        return _moments(deviation, inverse, gamma)
    if reader.op_type != "Mul" or not deviation.is_numerator(_beside(reader, inverse)):
        return None
    return _with_gamma(deviation, _Normalized(reader, gamma))


def _moments(deviation: _Deviation, factor: ir.Value, gamma: Singles | None) -> _Normalized | None:
    """X r + (beta - mean r) for the factor r, as TensorFlow writes c r + beta."""
    readers = [use.node for use in factor.uses()]
    if len(readers) != 2 or any(reader.op_type != "Mul" for reader in readers):
        return None
    means = [n for n in readers if deviation.is_mean(_beside(n, factor))]
    others = [n for n in readers if _beside(n, factor) is deviation.x]
    if len(means) != 1 or len(others) != 1 or not deviation.is_centred:
        return None
    offset, last = only_reader(means[0].outputs[0]), only_reader(others[0].outputs[0])
    if offset is None or last is None or offset.op_type != "Sub":
        return None
    if offset.inputs[1] is not means[0].outputs[0]:
        return None
    if offset is last:
        return _Normalized(last, gamma)
    beta = deviation.parameter(offset.inputs[0])
    if beta is None or last.op_type != "Add" or only_reader(offset.outputs[0]) is not last:
        return None
    return _Normalized(last, gamma, beta)


def _with_gamma(deviation: _Deviation, found: _Normalized) -> _Normalized:
    """With the factor behind it, where there is one and none was ahead."""
    y = found.node.outputs[0]
    reader = only_reader(y)
    if found.gamma is not None or reader is None or reader.op_type != "Mul":
        return found
    gamma = deviation.parameter(_beside(reader, y))
    return found if gamma is None else _Normalized(reader, gamma)


def _with_beta(deviation: _Deviation, found: _Normalized | None) -> _Normalized | None:
    """With the summand behind it, where there is one."""
    if found is None or found.beta is not None:
        return found
    y = found.node.outputs[0]
    reader = only_reader(y)
    if reader is None or reader.op_type != "Add":
        return found
    beta = deviation.parameter(_beside(reader, y))
    return found if beta is None else _Normalized(reader, found.gamma, beta)


def _beside(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The other one of a node's two operands."""
    first, second = node.inputs
    return second if first is value else first


# --- Sum and normalization that ONNX Runtime's tools made one node of become two again


_EPSILON = 1e-12  # the default of both skip operators
_SUM = 3  # output slot: x + skip + bias, which the next residual reads


@dataclass(frozen=True, slots=True)
class _Norm:
    """The normalization that is left of a skip operator without its sum.

    Attributes:
        opset: its first.
        inputs: slots of gamma, and of beta, where it has one.
        bias: slot of the vector that is added, too.
    """

    op_type: str
    opset: int
    inputs: tuple[int, ...]
    bias: int


_NORMS = {
    "SkipLayerNormalization": _Norm("LayerNormalization", 17, (2, 3), 4),
    "SkipSimplifiedLayerNormalization": _Norm("RMSNormalization", 23, (2,), 3),
}


class TakeSkipNormsApart(ir.passes.InPlacePass):
    """SkipLayerNormalization(x, skip, gamma, beta, bias) = LayerNormalization(x + skip + bias).

    And SkipSimplifiedLayerNormalization = RMSNormalization(x + skip + bias); all graphs. A bias is
    added first, to what a MatMul gives where one does, so that it is that MatMul's bias. The
    opset is raised to 17, or 23; a model that cannot be raised keeps its nodes, as do those whose
    mean or deviation is read.

    The two run faster than the one, from 16 rows on in 0.14 to 0.18 of its time, RMSNormalization
    in 0.5 to 0.6; for one row, in 0.3 to 0.6 and 0.9 to 1.2 (benchmarks/results/fusions.md; the sum
    as onnxq.ort.add_norm writes it). The sum can run in integers, too.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        modified = False
        for skip_type, norm in _NORMS.items():
            if not any(_is_apart(node, skip_type) for node in all_nodes(model)):
                continue
            if not raise_opset(model, norm.opset):
                continue
            names = FreeNames(model)
            for node in [n for n in all_nodes(model) if _is_apart(n, skip_type)]:
                _take_apart(node, norm, names)
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_apart(node: ir.Node, skip_type: str) -> bool:
    """Whether the node is of that type and can be two."""
    if (node.domain, node.op_type) != (MICROSOFT, skip_type):
        return False
    unread = (v for i, v in enumerate(node.outputs) if i not in (0, _SUM))
    return not any(map(is_read, unread))


def _take_apart(node: ir.Node, norm: _Norm, names: FreeNames) -> None:
    graph, stem = graph_of(node), str(node.name)
    y, a, b = node.outputs[0], input_at(node, 0), input_at(node, 1)

    def added(x: ir.Value, z: ir.Value, what: str) -> ir.Value:
        made = ir.node("Add", [x, z], name=names.node(f"{stem}_{what}"))
        (result,) = made.outputs
        result.name = names.value(f"{y.name}_{what}")
        result.type, result.shape = y.type, y.shape
        graph.insert_before(node, made)
        return result

    if has_input(node, norm.bias):
        if _is_matmul(b) and not _is_matmul(a):
            a, b = b, a
        a = added(a, input_at(node, norm.bias), "biased")
    total = added(a, b, "sum")
    parameters = [find_input(node, slot) for slot in norm.inputs]
    while parameters and parameters[-1] is None:
        parameters.pop()
    attributes = {"axis": -1, "epsilon": node.attributes.get_float("epsilon", _EPSILON)}
    made = ir.node(norm.op_type, [total, *parameters], attributes, name=stem)
    graph.insert_before(node, made)
    _give_way(y, made.outputs[0])
    if len(node.outputs) > _SUM:
        _give_way(node.outputs[_SUM], total)
    graph.remove(node, safe=True)


def _is_matmul(value: ir.Value) -> bool:
    """Whether a MatMul makes the value for this reader alone."""
    producer = value.producer()
    return producer is not None and producer.op_type == "MatMul" and len(value.uses()) == 1


def _give_way(old: ir.Value, new: ir.Value) -> None:
    """The new value takes over the readers, the type and, where it has one, the name of the old."""
    new.type, new.shape = old.type or new.type, old.shape or new.shape
    hand_on(old, new)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if old.name:
        new.name, old.name = old.name, None
