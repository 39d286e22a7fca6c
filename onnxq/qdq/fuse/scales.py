"""QParams of QuantizeLinear and DequantizeLinear nodes, and which initializers hold them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

from onnxq import dtypes
from onnxq.errors import ShapeError
from onnxq.graph.weights import constant
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.dtypes import QDType
    from onnxq.operator import Array
    from onnxq.qparams import Granularity

# reversed: a registered type may be stored as int8, but int8 codes are int8
DTYPES = {t.onnx: t for t in reversed(dtypes.all_qdtypes()) if t.is_integer}
CODES = ("uint8", "int8")  # the types that ONNX Runtime's integer kernels exist for
DOMAINS = ("", "ai.onnx", "com.microsoft")  # of the two operators; the arithmetic is the same


def is_quantize(node: ir.Node | None) -> bool:
    """Whether it is a QuantizeLinear."""
    return node is not None and node.op_type == "QuantizeLinear" and node.domain in DOMAINS


def is_dequantize(node: ir.Node | None) -> bool:
    """Whether it is a DequantizeLinear."""
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in DOMAINS


def zero_point_of(node: ir.Node) -> ir.Value | None:
    """The zero point of a Q or DQ node; None: 0, which is the default."""
    return node.inputs[2] if len(node.inputs) > 2 else None


def from_dequantize(value: ir.Value, reader: ir.Node) -> bool:
    """Whether a DQ of the reader's own graph makes it: fusion does not cross graphs."""
    producer = value.producer()
    return producer is not None and is_dequantize(producer) and producer.graph is reader.graph


class Int8Codes(enum.Enum):
    """What a machine does with int8 activations when it loads a QDQ model."""

    SHIFTED = "uint8"
    """x86: they become uint8 where that is possible; elsewhere products compute in float32."""
    KEPT = "int8"
    """ARM: products have kernels for them."""


class Scales:
    """QParams by node, each made once, and the way back from their arrays to initializers.

    Attributes:
        int8: what becomes of int8 activations.
    """

    def __init__(self, int8: Int8Codes = Int8Codes.SHIFTED) -> None:
        self.int8 = int8
        self._made: dict[tuple[object, ...], QParams | None] = {}
        self._values: dict[int, ir.Value] = {}
        self._owned: set[int] = set()

    def of(self, node: ir.Node) -> QParams | None:
        """The constant qparams of a Q or DQ node; None where they are not constants, or in blocks.

        A scale of shape (1,) counts as one number, as in ONNX Runtime.
        """
        scale_value = node.inputs[1]
        zero_value = zero_point_of(node)
        qdtype = _code_type(node)
        axis = int(node.attributes.get_int("axis", 1))  # ONNX: the default
        if qdtype is None or node.attributes.get_int("block_size", 0) != 0:
            return None
        key = (scale_value, zero_value, qdtype.name, axis)
        if key not in self._made:
            self._made[key] = self._make(scale_value, zero_value, qdtype, axis)
        return self._made[key]

    def _make(
        self, scale_value: ir.Value | None, zero_value: ir.Value | None, qdtype: QDType, axis: int
    ) -> QParams | None:
        scale, zero_point = _array(scale_value), _array(zero_value)
        if scale is None or scale.dtype != np.float32 or scale.ndim > 1:
            return None
        if zero_value is not None and zero_point is None:
            return None
        granularity: Granularity = PerChannel(axis)
        if scale.size == 1:
            granularity, scale = PerTensor(), scale.reshape(())
        if zero_point is None:
            zero_point = np.zeros(scale.shape, qdtype.storage)
        try:
            made = QParams(
                scale.astype(np.float32),
                zero_point.reshape(scale.shape).astype(qdtype.storage),
                qdtype,
                granularity,
            )
        except (ShapeError, ValueError):  # a scale of 0, another number of zero points
            return None
        self._owned |= {id(made.scale), id(made.zero_point)}
        for value, array in ((scale_value, made.scale), (zero_value, made.zero_point)):
            if value is not None and _shape(value) == array.shape:
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


def _code_type(node: ir.Node) -> QDType | None:
    codes = node.outputs[0] if is_quantize(node) else node.inputs[0]
    for value in (zero_point_of(node), codes):
        if value is not None and value.dtype is not None:
            return DTYPES.get(value.dtype.name)
        if value is not None and value.const_value is not None:
            return DTYPES.get(value.const_value.dtype.name)
    return dtypes.UINT8 if is_quantize(node) else None


def _array(value: ir.Value | None) -> Array | None:
    tensor = constant(value)
    return None if tensor is None else tensor.numpy()


def _shape(value: ir.Value) -> tuple[int, ...]:
    tensor = constant(value)
    return () if tensor is None else tuple(tensor.shape.numpy())
