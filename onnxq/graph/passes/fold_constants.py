"""Constants computed from constants become initializers: a transposed or scaled weight."""

import math
from collections.abc import Collection, Hashable, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import ModelError
from onnxq.graph.edit import all_nodes, graph_of
from onnxq.graph.folded import Folded, note
from onnxq.graph.saving import weight_bytes
from onnxq.graph.weights import EAGER_BYTES, constant, derived
from onnxq.operator.nodes import input_at, tensor_of

_NAMES = """
    Abs Add And BatchNormalization Cast Ceil Clip Concat ConstantOfShape Cos CumSum
    DequantizeLinear Div Equal Erf Exp Expand Flatten Floor Gather GatherElements
    GatherND Greater GreaterOrEqual Identity IsNaN LayerNormalization Less LessOrEqual Log
    MatMul Max Min Mod Mul Neg Not OneHot Or Pow Range Reciprocal ReduceL1 ReduceL2 ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round
    ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus Split Sqrt
    Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
"""
_FOLDABLE = frozenset(_NAMES.split())
"""Operators that shapes, masks and computed weights are made of (a standardized, normed or clipped
weight): deterministic, and NumPy computes what ONNX Runtime computes, sums but for their order."""
_REFERENCE_FROM = {"DequantizeLinear": 21}
"""First opset of which onnx.reference has an operator, where older nodes mean the same there."""
_GROWTH = 4  # a bigger result than so many times its inputs stays a node (4: bytes to float32)
_GROWTH_BYTES = 1 << 26
"""Bytes that all results together may have more than what they are computed of; a model with more
constants may grow by _GROWTH times these. 36 Concats of themselves make 2^37 numbers of two."""
_MOST_RUNS = 64
"""Nodes that are computed when a big constant is read: none is kept between two that read it, and a
chain of n nodes that read the one ahead of them by two ways is computed in 2^n."""
_MATMUL_WORK = 1 << 34
"""Multiply-adds of all MatMuls that are computed; each reading repeats them."""
_GROWING = frozenset(("ConstantOfShape", "Expand", "OneHot", "Range", "Tile"))
"""Operators whose small inputs may have outputs of any size."""
_SHARED_BYTES = 1024  # smaller results stay in their body: inference reads shapes only there


class FoldConstants(ir.passes.InPlacePass):
    """y = f(constants) becomes initializer y beside those that it is computed of, in bodies, too.

    Small results are computed now; big ones, of static type and shape, when they are read, so that
    a model of any size folds without memory. Nodes that compute the same share one initializer (a
    Transpose at each call of a module, or in both branches of an If). Graph outputs stay: an output
    must be produced by a node. So do the nodes behind those with which all results together would
    be too large (see _GROWTH_BYTES), or would be computed too often.

    Args:
        kept: operators that stay nodes all the same.
    """

    def __init__(self, kept: Collection[str] = ()) -> None:
        super().__init__()
        self._kept = kept

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Folds, in one sweep, chains included."""
        opset = model.opset_imports.get("", 0)
        modified = False
        made: dict[Hashable, list[ir.Value]] = {}
        left = max(_GROWTH_BYTES, _GROWTH * weight_bytes(model))
        work_left = _MATMUL_WORK
        runs: dict[int, int] = {}  # id of a result -> nodes that are computed when it is read
        for node in all_nodes(model):
            tensors = None if node.op_type in self._kept else _folded(node, opset)
            # constants that the node reads, each once, and bytes that the results have more
            read = {id(t): t for x in node.inputs if (t := constant(x)) is not None}.values()
            growth = max(0, sum(t.nbytes for t in tensors or ()) - sum(t.nbytes for t in read))
            count = 1 + sum(runs.get(id(tensor), 0) for tensor in read)
            work = _multiply_adds(node, tensors) if tensors else 0
            if tensors and growth <= left and count <= _MOST_RUNS and work <= work_left:
                left -= growth
                work_left -= work
                home = _home(node, tensors)
                initializers = [
                    ir.val(y.name, const_value=tensor, metadata_props=dict(y.metadata_props))
                    for y, tensor in zip(node.outputs, tensors, strict=True)
                ]
                values = made.setdefault(_computed(node, home), initializers)
                results = (value.const_value for value in values)
                runs |= {id(each): count for each in results if isinstance(each, ir.LazyTensor)}
                _replace(node, values, home)
                modified = True
        return ir.passes.PassResult(model, modified)


def _multiply_adds(node: ir.Node, results: list[ir.TensorProtocol]) -> int:
    """Multiply-adds of a MatMul; 0 for other nodes."""
    if node.op_type != "MatMul":
        return 0
    return results[0].size * max(1, tensor_of(input_at(node, 0)).shape.numpy()[-1])


def _folded(node: ir.Node, opset: int) -> list[ir.TensorProtocol] | None:
    """One tensor per output."""
    if node.op_type not in _FOLDABLE or node.domain or not node.inputs:
        return None
    if any(output.is_graph_output() for output in node.outputs):
        return None
    inputs = [constant(x) for x in node.inputs]
    absent = [x is None for x in node.inputs]
    if any(t is None and not a for t, a in zip(inputs, absent, strict=True)):
        return None
    if any(t is not None and t.dtype == ir.DataType.STRING for t in inputs):
        return None
    try:
        results = [_result(node, i, inputs, opset) for i in range(len(node.outputs))]
    except Exception:  # onnx.reference raises whatever its code does: ONNX Runtime is to say why
        return None
    known = [result for result in results if result is not None]
    return known if len(known) == len(results) else None


def _result(
    node: ir.Node, output: int, inputs: list[ir.TensorProtocol | None], opset: int
) -> ir.TensorProtocol | None:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(_as_model(node, opset))
    name = node.outputs[output].name

    def of_arrays(arrays: Sequence[Array | None]) -> Array:
        feeds = {f"x{i}": array for i, array in enumerate(arrays) if array is not None}
        try:
            results = evaluator.run(None, feeds)
        except Exception as error:  # as above; here, when a big constant is read
            raise ModelError(
                f"{node.op_type} '{node.name}' cannot be computed of its constants: {error}. "
                "Export the model again."
            ) from error
        return np.asarray(results[output])  # type: ignore[index]  # typed list | dict; a model gives a list

    def compute() -> Array:
        arrays = {id(t): t.numpy() for t in inputs if t is not None}
        return of_arrays([None if t is None else arrays[id(t)] for t in inputs])

    attributes = tuple(node.attributes.values())
    folded = Folded(node.op_type, attributes, tuple(inputs), of_arrays, output, len(node.outputs))
    shape, dtype = _static_shape(node, output, inputs), node.outputs[output].dtype
    read_bytes = sum(t.nbytes for t in inputs if t is not None)
    if dtype is not None and shape is not None:
        size_bytes = math.prod(shape) * dtype.itemsize
        is_bloated = size_bytes > max(EAGER_BYTES, _GROWTH * read_bytes)
        return None if is_bloated else note(derived(compute, dtype, shape, name), folded)
    if read_bytes <= EAGER_BYTES and node.op_type not in _GROWING:
        return note(ir.tensor(compute(), dtype=dtype, name=name), folded)
    return None


def _static_shape(
    node: ir.Node, output: int, inputs: list[ir.TensorProtocol | None]
) -> tuple[int, ...] | None:
    """The result's shape: inferred, or read from Expand's target, constant by now."""
    inferred = node.outputs[output].shape
    if inferred is not None and inferred.is_static():
        return tuple(inferred.numpy())
    if node.op_type != "Expand" or inputs[0] is None or inputs[1] is None:
        return None
    target = tuple(int(n) for n in inputs[1].numpy())
    return np.broadcast_shapes(tuple(inputs[0].shape.numpy()), target)


def _as_model(node: ir.Node, opset: int) -> onnx.ModelProto:
    """A model of that one node; inputs x0, x1 ..., outputs y0, y1 ..."""
    proto = ir.to_proto(node)
    proto.input[:] = ["" if x is None else f"x{i}" for i, x in enumerate(node.inputs)]
    names = [f"y{i}" for i in range(len(node.outputs))]
    proto.output[:] = names
    inputs = [
        onnx.helper.make_tensor_value_info(f"x{i}", x.dtype.value, None)
        for i, x in enumerate(node.inputs)
        if x is not None and x.dtype is not None
    ]
    undefined = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in names
    ]
    graph = onnx.helper.make_graph([proto], "constant", inputs, undefined)
    opset = max(opset, _REFERENCE_FROM.get(node.op_type, opset))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])


def _home(node: ir.Node, tensors: list[ir.TensorProtocol]) -> ir.Graph:
    """The graph that gets the results: that of the largest input, or a small one's own."""
    if sum(tensor.nbytes for tensor in tensors) < _SHARED_BYTES:
        return graph_of(node)
    inputs = [x for x in node.inputs if x is not None]
    home = max(inputs, key=lambda x: tensor_of(x).nbytes).graph
    assert isinstance(home, ir.Graph), "an initializer has one, and the node sees it"
    return home


def _computed(node: ir.Node, home: ir.Graph) -> Hashable:
    """Equal for nodes that compute the same of the same, and leave it in the same graph."""
    attributes = sorted(str(attribute) for attribute in node.attributes.values())
    read = [None if x is None else _identity(x) for x in node.inputs]
    return home, node.op_type, *attributes, *read, len(node.outputs)


def _identity(constant: ir.Value) -> Hashable:
    """A weight is known by its value, a small constant (axes, a shape) by what it holds."""
    tensor = tensor_of(constant)
    if tensor.nbytes >= _SHARED_BYTES:
        return constant
    return tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()


def _replace(node: ir.Node, values: list[ir.Value], home: ir.Graph) -> None:
    """Who read the outputs reads the values; these are registered there, if they are not yet."""
    for y, value in zip(node.outputs, values, strict=True):
        y.replace_all_uses_with(value)
    graph_of(node).remove(node, safe=True)
    for value in values:
        if value.name and not value.is_initializer():  # an output that is left out has none
            home.register_initializer(value)
