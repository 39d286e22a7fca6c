"""The data types that quantized tensors are stored in: a QDType each, and the table that names them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.errors import QConfigError, nearest


@dataclass(frozen=True, slots=True)
class QDType:
    """An integer type of the quantized domain.

    Attributes:
        name: ONNX's name in lower case ("uint8").
        bits: width of a stored element.
        signed: whether codes can be negative.
        storage: NumPy dtype of arrays of codes in memory, one element per code also below 8 bits.
        onnx: name in onnx.TensorProto.DataType.
        min_opset: first ai.onnx opset whose QuantizeLinear and DequantizeLinear take it.
    """

    name: str
    bits: int
    signed: bool
    storage: np.dtype[np.integer]
    onnx: str
    min_opset: int

    @property
    def qmin(self) -> int:
        """Smallest code: 0, or -2^(bits-1)."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def qmax(self) -> int:
        """Largest code: 2^bits - 1, or 2^(bits-1) - 1."""
        return (1 << (self.bits - self.signed)) - 1

    def __str__(self) -> str:
        return self.name


def _integer(name: str, storage: npt.DTypeLike, min_opset: int) -> QDType:
    signed = not name.startswith("u")
    bits = int(name.removeprefix("u").removeprefix("int"))
    return QDType(name, bits, signed, np.dtype(storage), name.upper(), min_opset)


UINT8 = _integer("uint8", np.uint8, 10)
INT8 = _integer("int8", np.int8, 10)
INT32 = _integer("int32", np.int32, 10)  # DequantizeLinear only: biases
UINT16 = _integer("uint16", np.uint16, 21)
INT16 = _integer("int16", np.int16, 21)
UINT4 = _integer("uint4", np.uint8, 21)
INT4 = _integer("int4", np.int8, 21)
UINT2 = _integer("uint2", np.uint8, 25)
INT2 = _integer("int2", np.int8, 25)

# PyTorch's documented names
quint8, qint8, qint32 = UINT8, INT8, INT32

_ALIASES = {"quint8": "uint8", "qint8": "int8", "qint32": "int32"}
_table = {t.name: t for t in (UINT8, INT8, INT32, UINT16, INT16, UINT4, INT4, UINT2, INT2)}


def find(name: str) -> QDType:
    """The QDType of that name; PyTorch's quint8, qint8 and qint32 are known too.

    Raises:
        QConfigError: no type has that name.
    """
    try:
        return _table[_ALIASES.get(name, name)]
    except KeyError:
        hint = nearest(name, [*_table, *_ALIASES])
        raise QConfigError(f"dtype '{name}' is not known; known: {', '.join(_table)}.{hint}") from None


def register_qdtype(qdtype: QDType) -> QDType:
    """Makes a data type known to `find` and to saved configurations; returns it.

    Raises:
        QConfigError: another type has that name.
    """
    if _table.setdefault(qdtype.name, qdtype) != qdtype:
        raise QConfigError(f"dtype '{qdtype.name}' is registered already; choose another name.")
    return qdtype
