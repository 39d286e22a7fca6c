"""Integers of a weight by a method: `prepared` once per input, then row by row in any order.

Rows are solved apart from each other, so that they may be cut into parts for workers or for memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from onnxq.dynamic.known_inputs import UNKNOWN
from onnxq.errors import CalibrationError
from onnxq.qparams.group_spec import Method
from onnxq.qparams.groups import beside
from onnxq.weights.gptq_groups import GroupwiseGPTQ
from onnxq.weights.hqq import HalfQuadratic
from onnxq.weights.rtn import Nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.core.arrays import Singles
    from onnxq.dynamic.known_inputs import Known
    from onnxq.qparams.group_spec import GroupSpec
    from onnxq.qparams.groups import GroupIntegers
    from onnxq.weights.hessian import InputHessians


class RowSolver(Protocol):
    """Solver of rows of a weight; it can be pickled, and sent to workers."""

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class InParts:
    """Solver of rows whose inputs are solved part by part.

    Attributes:
        solvers: of each part, in order.
    """

    solvers: Sequence[tuple[slice, RowSolver]]

    def __call__(self, rows: Singles, spec: GroupSpec) -> GroupIntegers:
        """Integers of float32 (rows, inputs)."""
        return beside(
            [solver(np.ascontiguousarray(rows[:, part]), spec) for part, solver in self.solvers]
        )


def _in_parts(solvers: Sequence[tuple[slice, RowSolver]]) -> RowSolver:
    return solvers[0][1] if len(solvers) == 1 else InParts(solvers)


def prepared(
    method: Method, inputs: InputHessians | None = None, known: Known = UNKNOWN
) -> RowSolver:
    """The solver of all weights that read one input.

    Args:
        method: how integers are found.
        inputs: Hessians that samples show; None: nothing was seen of them.
        known: of the input, without samples.

    Raises:
        CalibrationError: the method needs samples, and there are none.
    """
    if method.needs_samples and inputs is None:
        raise CalibrationError(
            f"method '{method.value}' needs samples; give some, or ask for hqq or rtn."
        )
    if method is Method.GPTQ:
        assert inputs is not None, "just looked"
        return _in_parts([(part, GroupwiseGPTQ.of(inputs.of_part(part))) for part in inputs.parts])
    return HalfQuadratic(known) if method is Method.HQQ else Nearest(alike=known.alike)
