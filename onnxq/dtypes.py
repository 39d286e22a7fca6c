"""The data types that quantized tensors are stored in: a QDType each, and the table of names.

uint8 int8               everywhere
uint16 int16 uint4 int4  from opset 21
uint2 int2               from opset 25
int32                    biases; DequantizeLinear reads it, QuantizeLinear does not write it
float16                  storage only: values are cast to it, there is no scale
"""

from dataclasses import dataclass

import numpy as np

from onnxq.core import plugins
from onnxq.errors import QConfigError, ShapeError, nearest

BYTE_BITS = 8
"""Bits of what integer MatMul and Conv multiply; narrower integers are packed in a file."""


@dataclass(frozen=True, slots=True)
class QDType:
    """A data type of quantized tensors.

    Attributes:
        name: ONNX's name in lower case ("uint8").
        bits: width of a stored element.
        signed: whether integers can be negative.
        storage: NumPy dtype of arrays of integers in memory, one element per integer also below 8
            bits; floating for a type that values are only cast to.
        onnx: name in onnx.TensorProto.DataType.
        min_opset: first ai.onnx opset whose QuantizeLinear and DequantizeLinear take it; for
            float16, the first whose Cast has it.
    Raises:
        ShapeError: storage cannot hold the integers.
    """

    name: str
    bits: int
    signed: bool
    storage: np.dtype[np.integer | np.floating]
    onnx: str
    min_opset: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage", np.dtype(self.storage))
        if not self.is_integer:
            return
        limits = np.iinfo(self.storage.name)
        if self.bits < 1 or self.qmin < limits.min or self.qmax > limits.max:
            sign = "signed" if self.signed else "unsigned"
            raise ShapeError(
                f"dtype '{self.name}': {self.storage} does not hold {self.bits} {sign} bits; "
                "choose a wider storage of that sign."
            )

    @property
    def is_integer(self) -> bool:
        """Whether the type has integers, scale and zero point; False: values are cast to it."""
        return self.storage.kind in "iu"

    @property
    def qmin(self) -> int:
        """Smallest integer: 0, or -2^(bits-1); of a floating type, the smallest finite value."""
        if not self.is_integer:
            return int(np.finfo(self.storage.name).min)
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def qmax(self) -> int:
        """Largest integer: 2^bits - 1, or 2^(bits-1) - 1; of a floating type, its largest value."""
        if not self.is_integer:
            return int(np.finfo(self.storage.name).max)
        return (1 << (self.bits - self.signed)) - 1

    def __str__(self) -> str:
        return self.name


def _integer(name: str, storage: type[np.integer], min_opset: int) -> QDType:
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
FLOAT16 = QDType("float16", 16, True, np.dtype(np.float16), "FLOAT16", 1)

_NARROW = frozenset(dtype.onnx for dtype in (UINT4, INT4, UINT2, INT2))

# PyTorch's documented names
quint8, qint8, qint32 = UINT8, INT8, INT32

float16 = FLOAT16

_ALIASES = {
    "quint8": "uint8",
    "qint8": "int8",
    "qint32": "int32",
    "half": "float16",
    "quint4x2": "uint4",
    "quint2x4": "uint2",  # two, four integers in a byte
}
_table = {t.name: t for t in (UINT8, INT8, UINT16, INT16, UINT4, INT4, UINT2, INT2, INT32, FLOAT16)}


def all_qdtypes() -> tuple[QDType, ...]:
    """Every known type, registered ones last."""
    return tuple(_table.values())


def in_bytes(dtype: QDType) -> QDType:
    """The 8-bit type that holds integers of a narrower ONNX type; any other type itself."""
    if dtype.onnx not in _NARROW:
        return dtype
    return INT8 if dtype.signed else UINT8


def find(name: str | QDType) -> QDType:
    """The QDType of that name; a QDType is returned as it is.

    PyTorch's names are known too, with or without "torch." before them: find(str(torch.qint8)).
    Those of plugins are (onnxq.core.plugins).

    Raises:
        QConfigError: no type has that name.
        UnsupportedError: a plugin, which may have it, cannot be imported.
    """
    if isinstance(name, QDType):
        return name
    plain = name.removeprefix("torch.")
    plain = _ALIASES.get(plain, plain)
    if plain not in _table:
        plugins.load()
    try:
        return _table[plain]
    except KeyError:
        hint = nearest(plain, [*_table, *_ALIASES])
        raise QConfigError(
            f"dtype '{name}' is not known; known: {', '.join(_table)}.{hint}"
        ) from None


def register_qdtype(qdtype: QDType) -> QDType:
    """Makes a data type known to `find` and to saved configurations; returns it.

    Raises:
        QConfigError: another type, or an alias, has that name.
    """
    if qdtype.name in _ALIASES or _table.setdefault(qdtype.name, qdtype) != qdtype:
        raise QConfigError(f"dtype '{qdtype.name}' is registered already; choose another name.")
    return qdtype
