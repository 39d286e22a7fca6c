"""Arithmetic of the machine that runs the tests: claims hold on each in its own arithmetic.

Tests compare ONNX Runtime with the reference in the ARITHMETIC of this machine, bit for bit. Those
whose claim itself needs exact sums of full-range weights have the mark `adds_exactly`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq import reference
from onnxq.ort.target_here import target_here
from onnxq.targets.accumulation import Accumulator, Arithmetic

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from onnxq.operator import IntegerOperator
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
