"""Engines that run an exported model: ONNX Runtime, and the reference kernels in any arithmetic."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.ort import runtime
from onnxq.qdq.tidy import computes_in_threads
from onnxq.reference import Evaluator, integer_evaluator, integer_form
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets.accumulation import SaturationMode


class Runs(Protocol):
    """A model that is ready to run."""

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """One array per named output; None: all, in the model's order."""


Engine = Callable[["ir.Model"], AbstractContextManager[Runs]]
"""Opens a model."""


def onnx_runtime(model: ir.Model) -> AbstractContextManager[Runs]:
    """The model on ONNX Runtime, whose kernels add as this machine does."""
    return runtime.open_session(model, threads=1 if computes_in_threads(model) else None)


def reference_kernels(
    model: ir.Model, saturation_mode: SaturationMode = SaturationMode.EXACT
) -> AbstractContextManager[Runs]:
    """The model on the reference kernels; its float nodes on ONNX Runtime."""
    integer = integer_form(model, saturation_mode)
    nodes = FloatNodes(integer)
    evaluator = integer_evaluator(integer, float_nodes=nodes, saturation_mode=saturation_mode)
    return contextlib.nullcontext(_Evaluated(evaluator))


class _Evaluated:
    """A reference evaluator, called as a session of ONNX Runtime."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        arrays: list[Array] = self._evaluator.run(outputs, feeds)
        return arrays
