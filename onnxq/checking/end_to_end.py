"""The reference evaluator on the model file, beside ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog, reference
from onnxq.checking.cross_findings import OutputAgreement
from onnxq.checking.differences import SCALES, ULPS, Differences
from onnxq.checking.execution import original_name
from onnxq.core.arrays import Array
from onnxq.errors import OnnxqError
from onnxq.ort import facts
from onnxq.ort.facts import Rounding
from onnxq.qdq.read import is_dequantize, one_scale
from onnxq.reference.float_nodes import FloatNodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from onnx.reference.op_run import OpRun

Values = dict[str, Array]

ROUNDING = 16
"""Ulps of the largest number of a float32 output that rounding explains behind float nodes.

ONNX Runtime fuses float nodes (MatMul with Add, LayerNormalization, Gelu) and adds in another order
then. What that changes is some units of 2^-23 of the largest number, 5 at most on the LSTM, GRU and
transformer in models/. 16 of them are at most 2^-19; a step of an 8-bit code is 2^-8, 2000 times as
much. 16 ulps of float16 are more than such a step: nothing counts as rounding there.
"""


class EndToEnd:
    """The reference evaluator on the model file, beside ONNX Runtime.

    Attributes:
        problem: why it cannot run; empty: it can.
        first_difference: the node where the integers part, in the order of ONNX Runtime's graph.
    """

    def __init__(self, target: ir.Model, threads: int) -> None:
        self.problem = ""
        self.first_difference = ""
        self._behind: dict[str, str] = {}
        self._fine: set[str] = set()  # outputs whose ulps are far below a code's step
        self._sums: dict[str, Differences] = {
            str(value.name): output_differences(value) for value in target.graph.outputs
        }
        try:
            self._evaluator = reference.evaluator(
                target, threads=threads, float_nodes=FloatNodes(target)
            )
        except OnnxqError as error:
            self.problem = str(error)

    def differs(self, feeds: Mapping[str, Array], wanted: Values) -> bool:
        """Compares one batch; True where an output differs."""
        if self.problem:
            return False
        try:
            got = self._evaluator.run(list(wanted), dict(feeds))
        except OnnxqError as error:
            self.problem = str(error)
            return False
        before = sum(sums.differing for sums in self._sums.values())
        for (name, theirs), ours in zip(wanted.items(), got, strict=True):
            if isinstance(theirs, np.ndarray):
                self._sums[name].update(ours, theirs)
                if theirs.dtype in (np.float32, np.float64):
                    self._fine.add(name)
            else:
                self._sums[name].problem = "it is no tensor"
        return sum(sums.differing for sums in self._sums.values()) > before

    def find_first_difference(
        self, feeds: Mapping[str, Array], results: Mapping[tuple[str, str], Array]
    ) -> None:
        """Names the first node whose integers the evaluator does not have.

        And the first node in front of each output that differs which computes in float.
        """
        ours = self._evaluator.run(None, dict(feeds), intermediate=True)
        for name, sums in self._sums.items():
            if sums.differing and name not in self._behind:
                self._behind[name] = self._first_float(name, ours)
        if self.first_difference:
            return
        outputs = {
            node.onnx_node.name: node.output[0] for node in self._evaluator.rt_nodes_ if node.output
        }
        for (node, value), theirs in results.items():
            twin = ours.get(value)
            if twin is None:
                twin = ours.get(outputs.get(original_name(node), ""))
            if _is_like(twin, theirs) and not _equal(np.asarray(twin), theirs):
                self.first_difference = node
                return

    def explained(self) -> bool:
        """Whether `find_first_difference` has nothing more to find."""
        differing = {name for name, sums in self._sums.items() if sums.differing}
        return bool(self.first_difference) and differing <= self._behind.keys()

    def _first_float(self, output: str, values: Mapping[str, object]) -> str:
        """The first node in front of the output that rounds floats; empty: none.

        One that is not elementwise, where there is one: a Mul of two scales explains little.
        """
        wanted, first, elementwise = {output}, "", ""
        nodes = zip(self._evaluator.rt_nodes_, self._evaluator.reads, strict=True)
        for node, reads in reversed(list(nodes)):
            if wanted.isdisjoint(node.output):
                continue
            wanted |= reads - {""}
            if not _rounds(node, values):
                continue
            if facts.named(node.op_type).rounding is Rounding.ONCE:
                elementwise = reference.where(node.onnx_node)
            else:
                first = reference.where(node.onnx_node)
        return first or elementwise

    def outputs(self) -> tuple[OutputAgreement, ...]:
        """One per graph output that was compared, if only on the batches before a problem."""
        return tuple(
            OutputAgreement(
                name,
                sums.elements,
                sums.differing,
                sums.largest,
                sums.unit,
                sums.problem,
                self._behind.get(name, ""),
                self._rounding(name, sums),
            )
            for name, sums in self._sums.items()
            if sums.elements or not self.problem
        )

    def _rounding(self, name: str, sums: Differences) -> int:
        """Steps that count as rounding: of floats that float nodes compute, not of codes."""
        fine = name in self._fine and sums.unit == ULPS
        return ROUNDING if fine and self._behind.get(name) else 0


def _rounds(node: OpRun, values: Mapping[str, object]) -> bool:
    """Whether a node computes floats, and not on a kernel that is exact."""
    exact = facts.named(node.op_type).rounding is Rounding.NONE
    if exact or not any(map(_is_float, map(values.get, node.output))):
        return False
    inputs = [np.asarray(values[name]) if name else None for name in node.input]
    if isinstance(node, reference.KernelOp) and node.uses_kernel(inputs):
        return node.adds_floats(inputs) or node.bound(inputs) is not None
    return True


def _is_float(x: object) -> bool:
    return isinstance(x, np.ndarray) and "float" in x.dtype.name


def _is_like(ours: object, theirs: Array) -> bool:
    return isinstance(ours, np.ndarray) and ours.dtype == theirs.dtype


def _equal(ours: Array, theirs: Array) -> bool:
    """Whether arrays are equal as they are, or theirs with channels last; other shapes pass."""
    if theirs.shape == ours.shape and np.array_equal(ours, theirs):
        return True
    last = np.moveaxis(theirs, -1, 1) if theirs.ndim > 2 else theirs
    if last.shape == ours.shape:
        return np.array_equal(ours, last)
    return theirs.shape != ours.shape


def output_differences(value: ir.Value) -> Differences:
    """In steps of its scale where a DequantizeLinear with one scale makes the output.

    Also where nodes that only move numbers (a Reshape) come between.
    """
    producer = value.producer()
    while producer is not None and catalog.moves_data(producer):
        source = producer.inputs[0]
        producer = None if source is None else source.producer()
    qparams = one_scale(producer) if is_dequantize(producer) else None
    return Differences() if qparams is None else Differences(SCALES, float(qparams.scale))
