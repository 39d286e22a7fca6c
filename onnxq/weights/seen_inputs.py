"""Inputs of a group as samples show them, in parts whose moments fit into memory.

    H of all inputs              up to some 6,400 inputs
    H of each part by itself     beyond: down projections of 11,008 or 14,336 inputs

Four parts of H take a fourth of what H takes. What is between the parts is not seen: errors in one
are not made up for in another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.qparams.group_spec import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onnxq.core.arrays import Reals
    from onnxq.weights.input_moments import InputMoments

    PartMoments = Sequence[tuple[slice, InputMoments]]
    """(part, its moments) of all parts of a group's inputs."""

MOST_BYTES = 1_500_000_000
"""Bytes of moments and solvers of one group."""
SOLVER_BYTES, MAKING_BYTES = 12, 24
"""Bytes of a solver of gptq per pair of inputs, and more while it is made: three matrices of
float32, and what they are made from in float64."""


@dataclass(frozen=True, slots=True, eq=False)
class SeenInputs:
    """Moments of a group's inputs, part by part; as long as the walk stands at the group.

    Attributes:
        parts: of the inputs, in order; each but the last one ends with a block, whatever its size.
        sums: gives the moments of a part.
    """

    parts: tuple[slice, ...]
    sums: Callable[[slice], InputMoments]

    @classmethod
    def whole(cls, moments: InputMoments) -> SeenInputs:
        """Inputs whose moments are known already, as one part."""
        return cls((slice(0, len(moments.own)),), lambda _: moments)

    def moments(self) -> list[tuple[slice, InputMoments]]:
        """(part, its moments) of all parts; a solver asks `sums` for one at a time."""
        return [(part, self.sums(part)) for part in self.parts]


def noise_in(left: Reals, moments: PartMoments) -> float:
    """tr(D H D'), H the moments of the parts: what an error D of a weight is in its results.

    Args:
        left: float64 (rows, inputs), D.
        moments: as `SeenInputs.moments` gives them.
    """
    some = (left[:, part] for part, _ in moments)
    pairs = zip(some, moments, strict=True)
    return sum(float(np.einsum("oi,oi->", d @ each.own, d)) for d, (_, each) in pairs)


def parts_of_inputs(inputs: int) -> tuple[slice, ...]:
    """The fewest parts of so many inputs for which a solver of gptq fits into MOST_BYTES.

        SOLVER_BYTES * inputs * part + MAKING_BYTES * part^2 <= MOST_BYTES

    Args:
        inputs: of the products.
    """
    half = SOLVER_BYTES * inputs / (2 * MAKING_BYTES)
    most = math.sqrt(half * half + MOST_BYTES / MAKING_BYTES) - half
    if inputs <= most:
        return (slice(0, inputs),)
    largest = max(BLOCKS)
    room = max(1, int(most) // largest)  # in blocks of the largest size
    blocks = -(-inputs // largest)
    count = -(-blocks // room)
    width = -(-blocks // count) * largest
    return tuple(slice(start, min(start + width, inputs)) for start in range(0, inputs, width))
