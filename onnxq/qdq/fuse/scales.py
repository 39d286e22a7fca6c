"""QParams of the Q and DQ nodes of one graph, each made once, and which initializers hold them."""

import enum
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq.affine import dequantize
from onnxq.graph.weights import constant
from onnxq.qdq import read
from onnxq.qparams import PerBlock, QParams

KERNEL_TYPES = ("uint8", "int8")  # the types that ONNX Runtime's integer kernels exist for


class Int8Activations(enum.Enum):
    """Treatment of int8 activations by a machine that loads a QDQ model."""

    SHIFTED = "uint8"
    """x86: they become uint8 where that is possible; elsewhere MatMuls compute in float32."""
    KEPT = "int8"
    """ARM: MatMuls have kernels for them."""


class Scales:
    """QParams by node, each made once, and the way back from their arrays to initializers."""

    def __init__(self, int8: Int8Activations = Int8Activations.SHIFTED) -> None:
        self.int8 = int8
        self._made: dict[tuple[object, ...], QParams | read.Unread] = {}
        self._values: dict[int, ir.Value] = {}
        self._owned: set[int] = set()

    def of(self, node: ir.Node) -> QParams | read.Unread:
        """The constant qparams of a Q or DQ node, of a kind that ONNX Runtime fuses."""
        axis = node.attributes.get_int("axis", read.DEFAULT_AXIS)
        size = node.attributes.get_int("block_size", 0)
        key = (
            node.inputs[read.SCALE],
            read.zero_point_of(node),
            read.integer_type(node),
            axis,
            size,
        )
        if key not in self._made:
            self._made[key] = self._read(node)
        return self._made[key]

    def _read(self, node: ir.Node) -> QParams | read.Unread:
        made = read.qparams_of(node)
        if isinstance(made, read.Unread):
            return made
        if isinstance(made.granularity, PerBlock):
            return read.Unread("its scales are one per block")
        scale = read.array_of(node, read.SCALE)
        if scale is None or scale.dtype != np.float32:
            return read.Unread("its scale is not float32")
        self._owned |= {id(made.scale), id(made.zero_point)}
        for slot, array in ((read.SCALE, made.scale), (read.ZERO_POINT, made.zero_point)):
            stored = read.array_of(node, slot)
            value = None if stored is None or stored.shape != array.shape else node.inputs[slot]
            if value is not None:
                self._values[id(array)] = value
        return made

    def initializer(self, array: object) -> ir.Value | None:
        """The initializer that a scale or zero point of `of` came from, or that was `noted`."""
        return self._values.get(id(array))

    def note(self, array: object, value: ir.Value) -> None:
        """Remembers a new initializer; the array must belong to QParams of `of`."""
        self._values[id(array)] = value

    def owns(self, array: object) -> bool:
        """Whether the array belongs to QParams of `of`, which live as long as this."""
        return id(array) in self._owned


# --- The float node that a node between DequantizeLinear and QuantizeLinear stands for


def float_view(node: ir.Node, scales: Scales) -> ir.Node:
    """A copy of the node, outside of any graph, that reads floats; quantized constants too.

    A rule sees in it what it saw in the float model; the data of constants is made when asked for.
    """
    inputs = [None if value is None else seen(value, scales) for value in node.inputs]
    return view_of(node, node.op_type, inputs, node.attributes.values())


def view_of(
    node: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Iterable[ir.Attr] = (),
) -> ir.Node:
    """A node of that type outside of any graph, with the name and the outputs' types of `node`."""
    view = ir.Node(
        node.domain,
        op_type,
        inputs,
        list(attributes),
        num_outputs=len(node.outputs),
        version=node.version,
        name=node.name,
    )
    for mine, value in zip(view.outputs, node.outputs, strict=True):
        mine.type, mine.shape = value.type, value.shape
    return view


def seen(value: ir.Value, scales: Scales) -> ir.Value:
    """A copy of the value outside of any graph: of quantized constants, the floats."""
    source = read.dequantizer(value)
    if source is None:
        return _copy(value, constant(value))
    tensor, qparams = constant(source.inputs[0]), scales.of(source)
    if tensor is None or isinstance(qparams, read.Unread):
        return _copy(value, None)
    return _copy(value, _real(tensor, qparams))


def _copy(value: ir.Value, tensor: ir.TensorProtocol | None) -> ir.Value:
    if tensor is None:
        return ir.val(value.name, type=value.type, shape=value.shape)
    return ir.val(value.name, const_value=tensor)


def _real(tensor: ir.TensorProtocol, qparams: QParams) -> ir.TensorProtocol:
    """The numbers that constant integers stand for, computed when they are read."""
    return ir.LazyTensor(
        lambda: ir.Tensor(dequantize(tensor.numpy(), qparams)),
        ir.DataType.FLOAT,
        ir.Shape(tensor.shape.numpy()),
    )
