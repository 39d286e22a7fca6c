"""Round to nearest: every weight by itself, in the range of its group with the least error.

Scales of a row are raised then, so that rounding makes its weights no smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.qparams.group_ranges import rounded, search_ranges, unshrunk

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.qparams.group_spec import GroupSpec
    from onnxq.qparams.groups import GroupIntegers


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """Solver of rows by rounding to nearest.

    Attributes:
        power: float32 (inputs,), what an error of each input's weight counts; None: all the same.
        alike: of `search_ranges`.
    """

    power: Singles | None = None
    alike: float = 0.0

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        made = rounded(rows, spec, *search_ranges(rows, spec, self.power, self.alike))
        return unshrunk(rows, made, self.power)
