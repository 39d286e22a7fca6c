"""Float nodes by themselves on ONNX Runtime, so that the reference's integers alone are tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import OnnxqError, UnsupportedError
from onnxq.graph.walk import bodies
from onnxq.ort import runtime
from onnxq.reference import RunNode, where

IR_VERSION = 10


class FloatNodes:
    """Opens a session for each float node; its constants stay constants, which decides kernels.

    Values that are computed from constants alone (dequantized weights) are constants too: ONNX
    Runtime folds them when it loads the model.

    Args:
        target: the model whose initializers they are.
    """

    def __init__(self, target: ir.Model) -> None:
        self._constants = {
            name: value.const_value
            for graph in target.graphs()
            for name, value in graph.initializers.items()
            if value.const_value is not None
        }
        self._folded = _folded(target)

    def __call__(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> RunNode:
        """Function that runs the node, as onnxq.reference.evaluator takes it."""
        constants = {name: self._constants[name] for name in node.input if name in self._constants}
        folded = self._folded.intersection(node.input)
        return _OneNode(node, dict(opsets), constants, folded)


def _folded(target: ir.Model) -> frozenset[str]:
    """Names of the values that constants alone give, bodies included."""
    found: set[ir.Value] = set()
    for node in target.graph.all_nodes():
        inputs = [value for value in node.inputs if value is not None]
        if bodies(node) or (not inputs and node.op_type != "Constant"):
            continue
        if all(value.const_value is not None or value in found for value in inputs):
            found.update(node.outputs)
    return frozenset(value.name for value in found if value.name)


@dataclass(slots=True)
class _OneNode:
    """A model of one node.

    Attributes:
        opsets: domain -> version.
        constants: those of its inputs that do not change.
        folded: inputs whose first values are taken for constants.
        sessions: by types and shapes of the inputs, as far as the model has them.
    """

    node: onnx.NodeProto
    opsets: dict[str, int]
    constants: dict[str, ir.TensorProtocol]
    folded: frozenset[str] = frozenset()
    sessions: dict[tuple[object, ...], runtime.Session] = field(default_factory=dict)

    def __call__(self, inputs: Sequence[Array | None]) -> Sequence[Array]:
        """Outputs of the node that have a name."""
        named = list(zip(self.node.input, inputs, strict=False))
        for name, x in named:
            if x is not None and name in self.folded and name not in self.constants:
                self.constants[name] = ir.tensor(x, name=name)
        feeds = {name: x for name, x in named if x is not None and name not in self.constants}
        key = tuple((name, x.dtype, *_sizes(x)) for name, x in feeds.items())
        try:
            if key not in self.sessions:
                self.sessions[key] = runtime.open_session(self._model(feeds), threads=1)
            return self.sessions[key].run(feeds)
        except OnnxqError as error:
            raise UnsupportedError(f"node {where(self.node)}, by itself: {error}") from error

    def _model(self, feeds: Mapping[str, Array]) -> ir.Model:
        inputs = [_input(name, x) for name, x in feeds.items()]
        inputs += [onnx.ValueInfoProto(name=name) for name in self.constants]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.node.output if name]
        graph = onnx.helper.make_graph([self.node], where(self.node), inputs, outputs)
        opsets = [onnx.helper.make_opsetid(*entry) for entry in self.opsets.items()]
        proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        model = ir.from_proto(proto)
        for value in list(model.graph.inputs):
            constant = self.constants.get(value.name or "")
            if constant is not None:
                model.graph.inputs.remove(value)
                value.const_value = constant
                model.graph.register_initializer(value)
        return model


def _input(name: str, x: Array) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, _sizes(x))


def _sizes(x: Array) -> list[int | None]:
    """Shape in the model of the node: open, but for lists of integers.

    These are sizes, axes and the like; their length is the rank of something, and ONNX's shape
    inference of Resize takes an open one for 0.
    """
    if x.ndim == 1 and np.issubdtype(x.dtype, np.integer):
        return [x.size]
    return [None] * x.ndim
