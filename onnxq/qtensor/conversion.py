"""Quantized tensors as ONNX writes them: initializers, and the DequantizeLinear that reads them.

    name = DequantizeLinear(name_quantized, name_scale, name_zero_point)

`to_ir` and `from_ir` speak onnx_ir, `to_onnx` and `from_onnx` protobufs.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnxq.errors import ModelError, ShapeError, UnsupportedError
from onnxq.operator import Array
from onnxq.qdq import read
from onnxq.qdq.tensors import stored_integers
from onnxq.qdq.write import qparams_from
from onnxq.qparams import PerChannel, PerTensor, QParams
from onnxq.qtensor.tensor import QTensor, check_tensor


def to_ir(tensor: QTensor, name: str) -> ir.Node:
    """The DequantizeLinear whose output `name` has the tensor's real values, bit for bit.

    Its inputs are constants, named as in the module docstring: register them as initializers of
    the graph that gets the node. Types below 8 and of 16 bits need opset 21, or 25 for 2 bits.

    Raises:
        ShapeError: tensor is no QTensor.
    """
    p = check_tensor("to_ir", tensor, "tensor").qparams
    integers = _constant(f"{name}_quantized", stored_integers(tensor.int_repr(), p.dtype))
    scale = _constant(f"{name}_scale", p.scale)
    zero_point = _constant(f"{name}_zero_point", stored_integers(p.zero_point, p.dtype))
    return qparams_from(scale, zero_point, p).dequantize(integers, f"{name}_dequantize", name)


def from_ir(node: ir.Node) -> QTensor:
    """The constant that a DequantizeLinear reads, as it is.

    Raises:
        ModelError: another operator, or an input that is computed at run time or absent.
        UnsupportedError: integers or a scale of a type that onnxq has no qparams for.
        ShapeError: shapes or values that do not fit together.
    """
    if not read.is_dequantize(node):
        raise ModelError(
            f"from_ir: node '{node.name}' is a {node.op_type}; wanted {read.DEQUANTIZE}."
        )
    where = f"from_ir: {read.DEQUANTIZE} '{node.name}'"
    integers, scale, _ = (_array(node, slot) for slot in (0, read.SCALE, read.ZERO_POINT))
    if integers is None or scale is None:
        raise ModelError(f"{where} has no integers or no scale.")
    if scale.dtype != np.float32:
        raise UnsupportedError(
            f"{where} has a scale of {scale.dtype}; wanted float32. "
            "Cast the scale, or work on the integers."
        )
    if ir.DataType.from_numpy(integers.dtype).name not in read.STORED:
        known = ", ".join(str(qdtype) for qdtype in read.STORED.values())
        raise UnsupportedError(f"{where} has integers of {integers.dtype}; onnxq has {known}.")
    found = read.qparams_of(node)
    if isinstance(found, read.Unread):
        raise ShapeError(f"{where}: {found.reason}.")
    return QTensor(
        integers.astype(found.dtype.storage), _with_channel(node, integers, scale, found)
    )


def _with_channel(node: ir.Node, integers: Array, scale: Array, found: QParams) -> QParams:
    """Per channel, where one channel has the one scale: such a tensor comes back as it was.

    ONNX Runtime calls it per tensor, as `found` does; the numbers are the same.
    """
    axis = node.attributes.get_int("axis", read.DEFAULT_AXIS)
    inside = -integers.ndim <= axis < integers.ndim
    if found.granularity != PerTensor() or not (
        scale.ndim and inside and integers.shape[axis] == 1
    ):
        return found
    scales, zeros = found.scale.reshape(1), found.zero_point.reshape(1)
    return QParams(scales, zeros, found.dtype, PerChannel(axis))


def to_onnx(tensor: QTensor, name: str) -> tuple[onnx.NodeProto, tuple[onnx.TensorProto, ...]]:
    """DequantizeLinear node and its three initializers, for a GraphProto; see `to_ir`."""
    node = to_ir(tensor, name)
    constants = [value.const_value for value in node.inputs if value is not None]
    protos = [ir.to_proto(constant) for constant in constants if constant is not None]
    return ir.to_proto(node), tuple(protos)


def from_onnx(node: onnx.NodeProto, initializers: Iterable[onnx.TensorProto]) -> QTensor:
    """QTensor of a DequantizeLinear node in protobuf; see `from_ir`.

    Args:
        node: a DequantizeLinear.
        initializers: of the graph; those that the node names are read.
    Raises:
        ModelError: another operator, or an input that is no initializer.
        UnsupportedError: integers or a scale of a type that onnxq has no qparams for.
        ShapeError: shapes or values that do not fit together.
    """
    wanted = {proto.name: proto for proto in initializers if proto.name in node.input}
    tensors = {name: ir.serde.deserialize_tensor(proto) for name, proto in wanted.items()}
    inputs = [
        ir.Value(name=name, const_value=tensors.get(name)) if name else None for name in node.input
    ]
    attributes = [ir.serde.deserialize_attribute(attribute) for attribute in node.attribute]
    return from_ir(ir.Node(node.domain, node.op_type, inputs, attributes, name=node.name))


def _constant(name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    return ir.val(name, const_value=ir.Tensor(array, name=name))


def _array(node: ir.Node, slot: int) -> Array | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    array = read.array_of(node, slot)
    if value is not None and array is None:
        raise ModelError(
            f"from_ir: {read.DEQUANTIZE} '{node.name}': input '{value.name}' is no initializer; "
            "only constants have integers before the model runs."
        )
    return array
