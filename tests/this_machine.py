"""Arithmetic of the machine that runs the tests: claims hold on each in its own arithmetic.

Tests compare ONNX Runtime with the reference in the SATURATION_MODE of this machine, bit for bit.
Claims about files for machines that add exactly are tested by `run_exactly`, which runs on any;
those that need ONNX Runtime's own exact sums of full-range weights have the mark `adds_exactly`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import reference
from onnxq.checking.prediction import find_layers
from onnxq.graph.io import load
from onnxq.ort import runtime
from onnxq.ort.target_here import target_here
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets.accumulation import Accumulator, SaturationMode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from onnxq.operator import Array, IntegerCall, IntegerOperator
    from onnxq.reference.evaluation import Evaluator

SATURATION_MODE = target_here().saturation_mode
"""Arithmetic of ONNX Runtime's kernels here; EXACT on x86 with VNNI."""
ACCUMULATOR = Accumulator(SATURATION_MODE)
SATURATES = SATURATION_MODE is SaturationMode.SATURATES
"""Whether a pair of products of uint8 by int8 saturates here."""

TARGET = "portable" if SATURATES else "x86-vnni"
"""Target with the largest weights whose sums are exact on this machine."""

adds_exactly = pytest.mark.skipif(
    SATURATES,
    reason=f"this machine is {target_here().name}: pairs of full-range products saturate",
)
"""Mark of claims about machines whose sums are exact."""


def kernel_called_here(operator: IntegerOperator) -> str:
    """Name of the method that the reference calls in this machine's arithmetic."""
    exact = SATURATION_MODE is SaturationMode.EXACT or not operator.depends_on_machine()
    return "kernel" if exact else "kernel_on"


def evaluator(model: str | Path | onnx.ModelProto | ir.Model) -> Evaluator:
    """The reference evaluator of a model, in this machine's arithmetic."""
    return reference.evaluator(model, saturation_mode=SATURATION_MODE)


def may_saturate(model: onnx.ModelProto | ir.Model) -> bool:
    """Whether weights of a model, or values that stand for them, can saturate on this machine."""
    if not SATURATES:
        return False
    layers = find_layers(reference.integer_form(load(model), SATURATION_MODE), SATURATION_MODE)
    return any(layer.possible != 0 for layer in layers.values())


def skip_where_it_saturates(model: ir.Model) -> None:
    """Ends a test here where the rest of it is about exact sums that this machine does not have."""
    if may_saturate(model):
        pytest.skip(f"this machine is {target_here().name}: the file's sums may saturate")


def run_exactly(model: ir.Model, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime where sums are exact; of the reference where they may not be here.

    For claims about files whose target is a machine that adds exactly.
    """
    if may_saturate(model):
        session = reference.evaluator(model, float_nodes=FloatNodes(model))
        return [np.asarray(y) for y in session.run(None, dict(feeds))]
    with runtime.open_session(model, threads=1) as plain:
        return list(plain.run(feeds))


def compute(operator: IntegerOperator, call: IntegerCall) -> tuple[Array, ...]:
    """Results of an operator's kernel in this machine's arithmetic."""
    if kernel_called_here(operator) == "kernel":
        return operator.kernel(call)
    return operator.kernel_on(call, ACCUMULATOR)
