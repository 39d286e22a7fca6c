"""The reference evaluator on the model file, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from onnxq import catalog, reference
from onnxq.checking.cross_findings import OutputAgreement
from onnxq.checking.differences import Differences, Unit
from onnxq.checking.rounding import FAR, Replayed, Theirs, replay
from onnxq.core.arrays import Array
from onnxq.errors import OnnxqError
from onnxq.ort import facts
from onnxq.ort.facts import Rounding
from onnxq.ort.node_kinds import original_name
from onnxq.qdq.read import is_dequantize, one_scale
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets.accumulation import SaturationMode

Values = dict[str, Array]


@dataclass(slots=True)
class EndCounts:
    """Differences of the outputs, in one batch or in many.

    Attributes:
        problem: why the model cannot run; batches behind such a one do not count.
        first_difference: the node where the integers part; empty: none.
        behind: output that differs -> the first node in front of it that rounds floats, or empty.
        rounding: output -> ulps that are explained.
        unexplained: outputs with a difference that is not.
    """

    sums: dict[str, Differences]
    problem: str = ""
    first_difference: str = ""
    behind: dict[str, str] = field(default_factory=dict)
    rounding: dict[str, int] = field(default_factory=dict)
    unexplained: set[str] = field(default_factory=set)

    def add(self, later: EndCounts) -> None:
        """Adds those of later batches."""
        if self.problem:
            return
        for name, sums in later.sums.items():
            self.sums[name].add(sums)
        self.problem = later.problem
        self.first_difference = self.first_difference or later.first_difference
        for name, node in later.behind.items():
            self.behind[name] = self.behind.get(name) or node
        for name, lsb in later.rounding.items():
            self.rounding[name] = max(self.rounding.get(name, 0), lsb)
        self.unexplained |= later.unexplained


class EndToEnd:
    """The reference evaluator on the model file, beside ONNX Runtime."""

    def __init__(self, target: ir.Model, threads: int, saturation_mode: SaturationMode) -> None:
        self._blank: dict[str, Differences] = {
            str(value.name): output_differences(value) for value in target.graph.outputs
        }
        self._batch: dict[str, Differences] = {}  # of the last one, where it differs
        self._refused = ""
        try:
            self._evaluator = reference.evaluator(
                target,
                threads=threads,
                float_nodes=FloatNodes(target),
                saturation_mode=saturation_mode,
            )
        except OnnxqError as error:
            self._refused = str(error)
        self.counts = self._nothing()

    def _nothing(self) -> EndCounts:
        return EndCounts({n: replace(sums) for n, sums in self._blank.items()}, self._refused)

    def take(self) -> EndCounts:
        """Counts since the last call, which are forgotten here."""
        found, self.counts = self.counts, self._nothing()
        return found

    def differs(self, feeds: Mapping[str, Array], wanted: Values) -> bool:
        """Compares one batch; True where an output differs."""
        if self.counts.problem:
            return False
        batch = self._nothing()
        try:
            got = self._evaluator.run(list(wanted), dict(feeds))
        except OnnxqError as error:
            self.counts.problem = str(error)
            return False
        for (name, theirs), ours in zip(wanted.items(), got, strict=True):
            pairs = _tensors(ours, theirs)
            if pairs is None:
                batch.sums[name].problem = "it is no tensor, and no sequence of as many tensors"
            for got_one, wanted_one in pairs or ():
                batch.sums[name].update(got_one, wanted_one)
        self._batch = {name: sums for name, sums in batch.sums.items() if sums.differing}
        self.counts.add(batch)
        return bool(self._batch)

    def explain(
        self, feeds: Mapping[str, Array], wanted: Values, results: Mapping[tuple[str, str], Array]
    ) -> None:
        """Says of the last batch, which differs, how much of it is rounding, and names the rest."""
        named = self._named(results, wanted)
        run = replay(self._evaluator, feeds, named)
        if run.has_hidden and not run.unexplained and not self._explains(run, wanted):
            run = replay(self._evaluator, feeds, named, FAR)
        counts = self.counts
        counts.first_difference = counts.first_difference or run.unexplained
        for name, sums in self._batch.items():
            theirs = wanted.get(name)
            if not isinstance(theirs, np.ndarray):
                continue
            counts.behind[name] = counts.behind.get(name) or self._first_float(name, run.rounding)
            self._judge(name, sums, theirs, run)

    def _explains(self, run: Replayed, wanted: Values) -> bool:
        """Whether rounding explains every output on the last batch."""
        theirs = {name: wanted.get(name) for name in self._batch}
        return all(
            is_within(run.outputs.get(name), x, run.bounds.get(name, 0.0))
            for name, x in theirs.items()
            if isinstance(x, np.ndarray)
        )

    def _named(self, results: Mapping[tuple[str, str], Array], wanted: Values) -> Theirs:
        """Integers and outputs of ONNX Runtime by the names that the evaluator has for them."""
        nodes = {
            node.onnx_node.name: node.output[0] for node in self._evaluator.rt_nodes_ if node.output
        }
        ours = {name for node in self._evaluator.rt_nodes_ for name in node.output}
        found: Theirs = {n: ("", y) for n, y in wanted.items() if isinstance(y, np.ndarray)}
        for (node, value), array in results.items():
            name = value if value in ours else nodes.get(original_name(node), "")
            if name:
                found[name] = (node, array)
        return found

    def _judge(self, name: str, sums: Differences, theirs: Array, run: Replayed) -> None:
        """Takes down whether rounding explains the output on one batch, and how many ulps."""
        bound, ours = run.bounds.get(name, 0.0), run.outputs.get(name)
        lsb = int(bound / sums.unit_size(theirs))
        if not is_within(ours, theirs, bound):
            self.counts.unexplained.add(name)
        else:
            lsb = max(lsb, sums.largest)
        self.counts.rounding[name] = max(self.counts.rounding.get(name, 0), lsb)

    def _first_float(self, output: str, rounding: Collection[int]) -> str:
        """The first node in front of the output that rounds floats; empty: none.

        One that is not elementwise, where there is one: a Mul of two scales explains little.
        """
        wanted, first, elementwise = {output}, "", ""
        for i, node in reversed(list(enumerate(self._evaluator.rt_nodes_))):
            if wanted.isdisjoint(node.output):
                continue
            wanted |= self._evaluator.reads[i] - {""}
            if i not in rounding:
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
                self.counts.behind.get(name, ""),
                self._lsb(name, sums),
            )
            for name, sums in self.counts.sums.items()
            if sums.elements or not self.counts.problem
        )

    def _lsb(self, name: str, sums: Differences) -> int:
        """Ulps that count as rounding."""
        found = self.counts.rounding.get(name, 0)
        return min(found, sums.largest - 1) if name in self.counts.unexplained else found


def _tensors(ours: object, theirs: object) -> list[tuple[object, Array]] | None:
    """The tensors to compare: one pair, or one for each of a sequence; None: neither."""
    if isinstance(theirs, np.ndarray):
        return [(ours, theirs)]
    if not isinstance(ours, list) or not isinstance(theirs, list) or len(ours) != len(theirs):
        return None
    if not all(isinstance(each, np.ndarray) for each in theirs):
        return None
    return list(zip(ours, theirs, strict=True))


def is_within(ours: object, theirs: Array, bound: float) -> bool:
    """Whether no number is further away than the bound, and what is not finite is alike."""
    if not isinstance(ours, np.ndarray) or ours.shape != theirs.shape:
        return False
    if np.array_equal(ours, theirs, equal_nan="float" in theirs.dtype.name):
        return True
    if "float" not in theirs.dtype.name or ours.dtype != theirs.dtype:
        return False
    with np.errstate(invalid="ignore"):
        far = np.abs(np.subtract(ours, theirs, dtype=np.float64))
    alike = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (far <= bound)
    return bool(alike.all())


def output_differences(value: ir.Value) -> Differences:
    """In LSB where a DequantizeLinear with one scale makes the output.

    Also where nodes that only move numbers (a Reshape) come between.
    """
    producer = value.producer()
    while producer is not None and catalog.moves_data(producer):
        source = producer.inputs[0]
        producer = None if source is None else source.producer()
    qparams = one_scale(producer) if is_dequantize(producer) else None
    return Differences() if qparams is None else Differences(Unit.SCALE, float(qparams.scale))
