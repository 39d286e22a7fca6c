"""Form of a weight in groups: bits, group size, symmetry; and the methods that find integers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from numbers import Real

from onnxq.dtypes import INT2, INT4, INT8, UINT2, UINT4, UINT8, QDType
from onnxq.errors import QConfigError, UnsupportedError

BITS = (2, 4, 8)
GROUP_SIZES = (16, 32, 64, 128)
ODD_BITS = (3, 5, 6, 7)
"""Widths between those that MatMulNBits has kernels for."""
TYPES = {2: (UINT2, INT2), 4: (UINT4, INT4), 8: (UINT8, INT8)}
"""Bits -> types of affine and of symmetric integers."""
POINT_BITS = 8  # rows of zero points end on a byte
SCALE_BYTES = 4  # float32
TWO_BITS, INTEGERS_IN_A_BYTE = 2, 4


class Scheme(enum.Enum):
    """Zero points of integers."""

    AFFINE = "affine"
    """Each group has its own, a whole number that is packed like the integers."""
    SYMMETRIC = "symmetric"
    """All lie in the middle of the integers, and are not stored."""
    REAL = "real"
    """Each group has its own, any float32: nearer, larger, and computed in float32."""


class Method(enum.Enum):
    """How integers are found."""

    RTN = "rtn"
    """Round to nearest, in the range with the least error."""
    HQQ = "hqq"
    """Round to nearest by what norms tell of inputs; half-quadratic real zero points; no data."""
    GPTQ = "gptq"
    """Columns one after the other, each making up for the errors so far; from samples."""

    @property
    def needs_samples(self) -> bool:
        """Whether it sees the layer's inputs."""
        return self is Method.GPTQ


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Form of a weight in groups.

    Attributes:
        bits: 2, 4 or 8 per integer.
        group_size: inputs that share a scale: 16, 32, 64 or 128. The last group of a row is filled
            up where the inputs do not divide.
        scheme: of zero points. Symmetric ones are 2^(bits - 1); -2^(bits - 1) is an integer as any
            other.
        signed: whether scales of symmetric integers may be negative. The lowest integer lies one
            step further from zero than the highest; so it is the weight of largest magnitude, be it
            above or below zero. DequantizeLinear wants positive scales.
    Raises:
        UnsupportedError: 3, 5, 6 or 7 bits, or 8 with real zero points, which ONNX Runtime has no
            kernels for.
        QConfigError: other bits, or another group size.
    """

    bits: int = 4
    group_size: int = 32
    scheme: Scheme = Scheme.AFFINE
    signed: bool = True

    def __post_init__(self) -> None:
        if self.bits in ODD_BITS:
            raise UnsupportedError(
                f"bits: got {self.bits}. ONNX Runtime packs whole integers into bytes: its "
                "MatMulNBits takes 2, 4 or 8 bits ('Only 2b, 4b and 8b quantization is "
                "supported'). Ask for 2, 4 or 8."
            )
        if type(self.bits) is not int or self.bits not in BITS:
            raise QConfigError(f"bits: got {self.bits!r}; wanted 2, 4 or 8.")
        if type(self.group_size) is not int or self.group_size not in GROUP_SIZES:
            raise QConfigError(
                f"group_size: got {self.group_size!r}; wanted 16, 32, 64 or "
                f"128.{_nearest_size(self.group_size)}"
            )
        if self.scheme is Scheme.REAL and self.bits == BITS[-1]:
            raise UnsupportedError(
                "scheme 'real' with 8 bits: ONNX Runtime's MatMulNBits has float zero points for "
                "2 and 4 bits alone. Ask for 'affine'."
            )

    @property
    def symmetric(self) -> bool:
        """Whether zero points are not stored."""
        return self.scheme is Scheme.SYMMETRIC

    @property
    def words(self) -> str:
        """The form in words; other forms have others."""
        kind = self.scheme.value
        if self.symmetric and not self.signed:
            kind += " with positive scales"
        return f"{self.bits} bits in groups of {self.group_size}, {kind}"

    @property
    def with_whole_points(self) -> GroupSpec:
        """The form without real zero points, which lookups and mixtures of experts do not take."""
        real = self.scheme is Scheme.REAL
        return replace(self, scheme=Scheme.AFFINE) if real else self

    def at(self, bits: int) -> GroupSpec:
        """The form with other bits; 8 have no real zero points, and take whole ones."""
        real = self.scheme is Scheme.REAL and bits == BITS[-1]
        return replace(self, bits=bits, scheme=Scheme.AFFINE if real else self.scheme)

    @property
    def dtype(self) -> QDType:
        """Type of the integers where they have one of their own (DequantizeLinear)."""
        return TYPES[self.bits][self.symmetric]

    @property
    def most(self) -> int:
        """The largest unsigned integer."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point of symmetric integers."""
        return 1 << (self.bits - 1)

    def groups(self, inputs: int) -> int:
        """How many groups a row of so many inputs has."""
        return -(-inputs // self.group_size)

    def size_bytes(self, rows: int, inputs: int) -> int:
        """Bytes of a weight in the file."""
        count = self.groups(inputs)
        points = {
            Scheme.AFFINE: rows * -(-count * self.bits // POINT_BITS),
            Scheme.SYMMETRIC: 0,
            Scheme.REAL: rows * count * SCALE_BYTES,
        }
        integers = rows * count * (self.group_size * self.bits // POINT_BITS + SCALE_BYTES)
        return integers + points[self.scheme]


def _nearest_size(size: object) -> str:
    """A phrase to end a message with; empty where a number of groups is not what was given."""
    if not isinstance(size, Real):
        return ""
    return f" The nearest is {min(GROUP_SIZES, key=lambda known: abs(known - float(size)))}."


def is_scrambled(bits: int, outputs: int) -> bool:
    """Whether ONNX Runtime misreads DequantizeLinear's integers of a (inputs, outputs) matrix.

    It turns the matrix over for MatMulNBits; 2-bit rows that do not end with a byte come out wrong
    (1.31.1: results are off by more than their largest, and change from session to session).
    """
    return bits == TWO_BITS and outputs % INTEGERS_IN_A_BYTE != 0
