"""Group-wise quantized weight: integers, scales, zero points; packed as MatMulNBits reads them.

w[o, i] = (integers[o, i] - zero_point[o, b]) * scale[o, b]        b = i // group
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Singles
from onnxq.core.packing import packed_rows
from onnxq.errors import ShapeError
from onnxq.qparams.group_spec import GroupSpec, Scheme

INTEGERS, SCALES, POINTS = "integers", "scales", "zero_points"
"""Names of the arrays of `PackedGroups`."""

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
        spec, (rows, inputs) = self.spec, self.integers.shape
        count = spec.groups(inputs)
        nearest = np.clip(np.rint(self.zero_point), 0, spec.most).astype(np.uint8)
        padded = np.repeat(nearest, spec.group_size, axis=1)
        padded[:, :inputs] = self.integers
        integers = packed_rows(padded, spec.bits).reshape(rows, count, -1)
        points: dict[Scheme, Points | None] = {
            Scheme.AFFINE: packed_rows(nearest, spec.bits).reshape(-1),
            Scheme.SYMMETRIC: None,
            Scheme.REAL: np.asarray(self.zero_point, np.float32).reshape(-1),
        }
        scales = np.ascontiguousarray(self.scale).reshape(-1)
        return PackedGroups(integers, scales, points[spec.scheme])


def concatenated(parts: Sequence[GroupIntegers]) -> GroupIntegers:
    """Concatenates weights along their inputs; each part ends at the border of a group."""
    return GroupIntegers(
        parts[0].spec,
        np.concatenate([part.integers for part in parts], axis=1),
        np.concatenate([part.scale for part in parts], axis=1),
        np.concatenate([part.zero_point for part in parts], axis=1),
    )
