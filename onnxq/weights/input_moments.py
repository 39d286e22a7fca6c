"""Second moments of a product's inputs: what an error of its weight becomes in its results.

    E|W x - V xq|^2 = tr(W F W') - 2 tr(V C' W') + tr(V H V')
    H = E[xq xq'], C = E[x xq'], F = E[x x']

x is what the product reads in the float model, xq in the quantized one, where weights ahead of it
have errors already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals


@dataclass(frozen=True, slots=True, eq=False)
class InputMoments:
    """Means over rows of inputs, as they were seen.

    Attributes:
        own: float64 (inputs, inputs), E[xq xq'].
        cross: float64 (inputs, inputs), E[x xq'] of the float model's x; None: x is xq.
    """

    own: Reals
    cross: Reals | None = None
