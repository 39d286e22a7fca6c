"""Group-wise quantized weight: integers, scales, zero points; packed as MatMulNBits reads them.

w[o, i] = (integers[o, i] - zero_point[o, b]) * scale[o, b]        b = i // group
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Array, Singles
from onnxq.core.packing import packed_rows
from onnxq.errors import ShapeError
from onnxq.qparams import QParams
from onnxq.qparams.group_spec import GroupSpec, Scheme

INTEGERS, SCALES, POINTS = "integers", "scales", "zero_points"
"""Names of the arrays of `PackedGroups`."""
INT8_ACCURACY = 4
"""accuracy_level of MatMulNBits: activations are quantized to int8; ONNX Runtime's default."""

Bytes = npt.NDArray[np.uint8]
Points = npt.NDArray[np.uint8] | npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PackedGroups:
    """Arrays of a com.microsoft MatMulNBits.

    Attributes:
        integers: uint8 (outputs, groups, group * bits / 8), the first integer in the low bits.
        scales: float32 (outputs * groups,).
        zero_points: uint8, packed like the integers, each row to whole bytes; float32
            (outputs * groups,) of scheme real; None: 2^(bits - 1).
    """

    integers: Bytes
    scales: Singles
    zero_points: Points | None

    @property
    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Name -> array, without absent ones."""
        found: dict[str, npt.NDArray[np.generic]] = {INTEGERS: self.integers, SCALES: self.scales}
        return found if self.zero_points is None else found | {POINTS: self.zero_points}


@dataclass(frozen=True, slots=True, eq=False)
class GroupIntegers:
    """Group-wise quantized weight (outputs, inputs).

    Attributes:
        spec: bits, group size and scheme.
        integers: uint8 (outputs, inputs), unsigned whatever the spec.
        scale: float32 (outputs, groups), not 0; may be negative where the spec is signed.
        zero_point: uint8 (outputs, groups); float32 of scheme real.
    Raises:
        ShapeError: shapes that do not fit together.
    """

    spec: GroupSpec
    integers: Bytes
    scale: Singles
    zero_point: Points

    def __post_init__(self) -> None:
        rows, inputs = self.integers.shape
        wanted = (rows, self.spec.groups(inputs))
        if self.scale.shape != wanted or self.zero_point.shape != wanted:
            raise ShapeError(
                f"integers {self.integers.shape} in groups of {self.spec.group_size} want scales "
                f"and zero points of shape {wanted}; got {self.scale.shape} and "
                f"{self.zero_point.shape}."
            )

    @property
    def dequantized(self) -> Singles:
        """float32 (outputs, inputs): the dequantized weight."""
        group_of = np.arange(self.integers.shape[1]) // self.spec.group_size
        centred = self.integers.astype(np.float32) - self.zero_point.astype(np.float32)[:, group_of]
        return np.asarray(centred * self.scale[:, group_of], np.float32)

    def packed(self) -> PackedGroups:
        """The arrays that MatMulNBits reads; a short last group is filled up with zero points."""
        spec, nearest = self.spec, np.clip(np.rint(self.zero_point), 0, self.spec.most)
        made = _packed(self.integers, self.scale, nearest, spec.bits, spec.group_size)
        if spec.scheme is Scheme.AFFINE:
            return made
        real = np.asarray(self.zero_point, np.float32).reshape(-1)
        return replace(made, zero_points=real if spec.scheme is Scheme.REAL else None)


def packed_matmul(integers: Array, qparams: QParams, size: int) -> PackedGroups:
    """MatMulNBits' arrays of integers (inputs, outputs); of qparams for each group of `size`."""
    bits, shape = qparams.dtype.bits, (-(-len(integers) // size), integers.shape[1])
    offset = 1 << (bits - 1) if qparams.dtype.signed else 0
    scale, point = (np.broadcast_to(x, shape).T for x in (qparams.scale, qparams.zero_point))
    unsigned, points = (x.astype(np.int16) + offset for x in (integers.T, point))
    return _packed(unsigned, scale, points, bits, size)


def _packed(integers: Array, scale: Array, points: Array, bits: int, size: int) -> PackedGroups:
    """Arrays of unsigned integers (outputs, inputs), scales and zero points (outputs, groups)."""
    nearest: Bytes = points.astype(np.uint8)
    padded = np.repeat(nearest, size, axis=1)
    padded[:, : integers.shape[1]] = integers
    packed = packed_rows(padded, bits).reshape(*points.shape, -1)
    scales = np.ascontiguousarray(scale, np.float32).reshape(-1)
    return PackedGroups(packed, scales, packed_rows(nearest, bits).reshape(-1))


def concatenated(parts: Sequence[GroupIntegers]) -> GroupIntegers:
    """Concatenates weights along their inputs; each part ends at the border of a group."""
    return GroupIntegers(
        parts[0].spec,
        np.concatenate([part.integers for part in parts], axis=1),
        np.concatenate([part.scale for part in parts], axis=1),
        np.concatenate([part.zero_point for part in parts], axis=1),
    )
