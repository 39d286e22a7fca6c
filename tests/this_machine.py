"""Arithmetic of the machine that runs the tests: claims hold on each in its own arithmetic.

Tests compare ONNX Runtime with the reference in the ARITHMETIC of this machine, bit for bit. Claims
about files for machines that add exactly are tested by `run_exactly`, which runs on any; those that
need ONNX Runtime's own exact sums of full-range weights have the mark `adds_exactly`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import reference
from onnxq.ort import runtime
from onnxq.ort.target_here import target_here
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets.accumulation import Accumulator, Arithmetic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from onnxq.operator import Array, IntegerOperator
    from onnxq.reference.evaluation import Evaluator

ARITHMETIC = target_here().arithmetic
"""Arithmetic of ONNX Runtime's kernels here; EXACT on x86 with VNNI."""
ACCUMULATOR = Accumulator(ARITHMETIC)
SATURATES = ARITHMETIC is Arithmetic.SATURATES
"""Whether a pair of products of uint8 by int8 saturates here."""

adds_exactly = pytest.mark.skipif(
    SATURATES,
    reason=f"this machine is {target_here().name}: pairs of full-range products saturate",
)
"""Mark of claims about machines whose sums are exact."""


def kernel_called_here(operator: IntegerOperator) -> str:
    """Name of the method that the reference calls in this machine's arithmetic."""
    exact = ARITHMETIC is Arithmetic.EXACT or not operator.has_products()
    return "kernel" if exact else "kernel_on"


def evaluator(model: str | Path | onnx.ModelProto | ir.Model) -> Evaluator:
    """The reference evaluator of a model, in this machine's arithmetic."""
    return reference.evaluator(model, arithmetic=ARITHMETIC)


def run_exactly(model: ir.Model, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime on a machine that adds exactly; of the reference where this does not.

    For claims about files whose target is such a machine.
    """
    if SATURATES:
        session = reference.evaluator(model, float_nodes=FloatNodes(model))
        return [np.asarray(y) for y in session.run(None, dict(feeds))]
    with runtime.open_session(model, threads=1) as session_of_ort:
        return list(session_of_ort.run(feeds))
