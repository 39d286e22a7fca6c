"""A quantized model on machines of several kinds of arithmetic: the reference, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxq import reference
from onnxq.checking.end_to_end import output_differences
from onnxq.checking.prediction import (
    LayerCounts,
    MachineLayer,
    MachinePrediction,
    OutputPrediction,
    find_layers,
)
from onnxq.checking.rounding import replay
from onnxq.core.threads import workers
from onnxq.graph.walk import bodies
from onnxq.ort import node_kinds as kernels
from onnxq.qdq.narrow import unpacked
from onnxq.qdq.read import integer_type, is_quantize
from onnxq.reference.float_nodes import FloatNodes
from onnxq.samples import input_specs
from onnxq.samples.state import State
from onnxq.targets.accumulation import SaturationMode

if TYPE_CHECKING:
    from collections.abc import Collection

    import onnx

    from onnxq.checking.differences import Differences
    from onnxq.core.arrays import Array
    from onnxq.samples import InputSpec
    from onnxq.samples.inputs import Batch
    from onnxq.targets.accumulation import Overflows

    Values = dict[str, Any]


Kinds = Sequence[tuple[SaturationMode, tuple[str, ...]]]
"""Arithmetic, and the names of the targets that have it."""


@dataclass(slots=True)
class MachineCounts:
    """Differences of one kind of arithmetic, in one batch or in many."""

    layers: list[LayerCounts]
    outputs: dict[str, Differences]

    def add(self, other: MachineCounts) -> None:
        """Adds those of later batches."""
        for ours, theirs in zip(self.layers, other.layers, strict=True):
            ours.add(theirs)
        for name, sums in other.outputs.items():
            if name in self.outputs:
                self.outputs[name].add(sums)
            else:
                self.outputs[name] = sums


@dataclass(slots=True)
class Counts:
    """Differences of every kind of arithmetic."""

    machines: list[MachineCounts]
    decided: int = 0
    near: int = 0

    def add(self, other: Counts) -> None:
        """Adds those of later batches."""
        for ours, theirs in zip(self.machines, other.machines, strict=True):
            ours.add(theirs)
        self.decided += other.decided
        self.near += other.near


class Machines:
    """A model on machines of several kinds of arithmetic."""

    def __init__(
        self, target: ir.Model, kinds: Kinds, feedback: Mapping[str, str], threads: int
    ) -> None:
        forms = machine_forms(target, [kind for kind, _ in kinds])
        self._usual = forms[SaturationMode.EXACT]
        self._machines = [_Machine(forms[kind], kind, names) for kind, names in kinds]
        self._ties = _Ties(self._usual, feedback, threads)
        self._feedback, self._threads = feedback, threads
        self.inputs = input_specs(target, feedback.values())
        self.behind = self._ties.behind

    def nothing(self) -> Counts:
        """Counts of no batch."""
        return Counts([machine.nothing() for machine in self._machines])

    def results(self, counts: Counts) -> tuple[MachinePrediction, ...]:
        """Predictions of all kinds; without a batch, from the weights alone."""
        pairs = zip(self._machines, counts.machines, strict=True)
        return tuple(machine.result(found) for machine, found in pairs)

    def open(self) -> Callable[[Batch], Counts]:
        """Makes it ready to run; the function of a batch: its counts."""
        others = [machine.form for machine in self._machines if machine.form is not self._usual]
        sessions = [
            _Session(form, self._machines, self.inputs, self._feedback, self._threads)
            for form in (self._usual, *others[:1])
        ]
        state = State(self.inputs, self._feedback)

        def count(batch: Batch) -> Counts:
            feeds = state.feeds(batch)
            exact = None
            for session in sessions:
                exact = session.run(batch, feeds, exact)
            assert exact is not None
            decided, near = self._ties.count(feeds)
            state.keep(exact)
            return Counts([machine.take() for machine in self._machines], decided, near)

        return count


@dataclass(frozen=True, slots=True, eq=False)
class MachineForm:
    """The model as machines run it after loading."""

    target: ir.Model
    integer: ir.Model


def machine_forms(
    target: ir.Model, kinds: Iterable[SaturationMode]
) -> dict[SaturationMode, MachineForm]:
    """Forms of the model per saturation mode, and exact: x86 makes int8 values uint8, ARM not."""
    target = unpacked(target)
    usual = MachineForm(target, reference.integer_form(target))
    forms = dict.fromkeys((SaturationMode.EXACT, *kinds), usual)
    arm = [kind for kind in forms if kind.fixed_point]
    if arm and _has_int8_activations(target):
        forms |= dict.fromkeys(arm, MachineForm(target, reference.integer_form(target, arm[0])))
    return forms


class _Ties:
    """Integers that floats decide, counted on samples."""

    def __init__(self, form: MachineForm, feedback: Mapping[str, str], threads: int) -> None:
        self.behind = behind_floats(form.integer, feedback)
        self._form, self._threads = form, threads
        self._evaluator: reference.Evaluator | None = None

    def count(self, feeds: Mapping[str, Array]) -> tuple[int, int]:
        """(integers, how many of them are next to a tie) of one batch."""
        if not self.behind.integers:
            return 0, 0
        if self._evaluator is None:
            self._evaluator = reference.integer_evaluator(
                self._form.integer, threads=self._threads, float_nodes=FloatNodes(self._form.target)
            )
        with workers(self._threads):
            run = replay(self._evaluator, feeds, {})
        return run.decided, run.near_ties


class _Session:
    """One form of the model, run exactly and as the machines that have it."""

    def __init__(
        self,
        form: MachineForm,
        machines: Iterable[_Machine],
        inputs: tuple[InputSpec, ...],
        feedback: Mapping[str, str],
        threads: int,
    ) -> None:
        self._machines = [machine for machine in machines if machine.form is form]
        self._states = [State(inputs, feedback) for _ in self._machines]
        self._names = list(dict.fromkeys(str(value.name) for value in form.target.graph.outputs))
        for machine in self._machines:
            machine.open()
        self._both = reference.Evaluators(
            form.integer,
            [machine.beside() for machine in self._machines],
            threads=threads,
            float_nodes=FloatNodes(form.target),
        )

    def run(
        self, batch: Mapping[str, Array], feeds: Mapping[str, Array], usual: Values | None
    ) -> Values:
        """Exact outputs; compares those of the machines with them.

        Args:
            batch: without the state.
            feeds: the batch with the state of exact arithmetic.
            usual: exact outputs of the usual form; None: it is this one.
        """
        own = [state.feeds(batch) for state in self._states]
        exact, others = self._both.run(self._names, feeds, own)
        for machine, state, got in zip(self._machines, self._states, others, strict=True):
            state.keep(got)
            machine.compare(got, exact if usual is None else usual)
        return exact if usual is None else usual


def _has_int8_activations(target: ir.Model) -> bool:
    """Whether x86 and ARM may run the model in different forms."""
    quantizers = filter(is_quantize, target.graph.all_nodes())
    return any(integer_type(node) == ir.DataType.INT8 for node in quantizers)


class _Machine:
    """One kind of arithmetic beside exact integers."""

    def __init__(
        self, form: MachineForm, saturation_mode: SaturationMode, names: tuple[str, ...]
    ) -> None:
        self.form, self._saturation_mode, self._names = form, saturation_mode, names
        self._layers: dict[str, MachineLayer] = find_layers(form.integer, saturation_mode)
        self._of_output = {name: layer for layer in self._layers.values() for name in layer.outputs}
        self._outputs: dict[str, Differences] = {}

    def open(self) -> None:
        """Makes it ready to run."""
        graph = self.form.target.graph
        self._outputs = {str(value.name): output_differences(value) for value in graph.outputs}

    def beside(self) -> reference.Beside:
        """Model that the reference has to run; exact where no pair of weights can overflow."""
        risky = [name for name, layer in self._layers.items() if layer.possible != 0]
        return reference.Beside(self._saturation_mode, risky, self._hear, self._see)

    def _hear(self, node: onnx.NodeProto, found: Overflows) -> None:
        self._layers[node.output[0]].hear(found)

    def _see(self, name: str, got: object, wanted: object) -> None:
        layer = self._of_output.get(name)
        if layer is not None:
            layer.compare(got, wanted)

    def compare(self, got: Mapping[str, object], exact: Mapping[str, object]) -> None:
        """Counts the outputs of one batch that differ."""
        for name, sums in self._outputs.items():
            theirs = exact[name]
            if got[name] is theirs and isinstance(theirs, np.ndarray):
                sums.same(theirs)
            elif isinstance(theirs, np.ndarray):
                sums.update(got[name], theirs)

    def nothing(self) -> MachineCounts:
        """Counts of no batch."""
        return MachineCounts([LayerCounts() for _ in self._layers], {})

    def take(self) -> MachineCounts:
        """Counts since the last call, which are forgotten here."""
        found = MachineCounts([layer.take() for layer in self._layers.values()], self._outputs)
        self.open()
        return found

    def result(self, counts: MachineCounts) -> MachinePrediction:
        """Prediction of these counts."""
        layers = zip(self._layers.values(), counts.layers, strict=True)
        return MachinePrediction(
            self._names,
            self._saturation_mode.value,
            tuple(layer.result(found) for layer, found in layers),
            tuple(
                OutputPrediction(
                    name,
                    sums.elements,
                    sums.differing,
                    sums.largest,
                    sums.unit,
                    sums.error,
                    sums.size,
                )
                for name, sums in counts.outputs.items()
            ),
        )


# --- Integers behind nodes that round floats, which may depend on the machine
#
# A node that rounds may give other last bits on another machine (onnxq.ort.node_kinds). Integers
# computed from these can be one LSB apart, and then whatever is computed from the integers.
# Everything else is the same integers, or the same floats, wherever products of integers are added
# alike.


@dataclass(frozen=True, slots=True)
class BehindFloats:
    """Nodes of one model that round floats, and what is computed from them.

    Attributes:
        floats: op type -> nodes that round floats, the most frequent first.
        integers: names of the nodes behind them that make integers or compute with them, in graph
            order.
        outputs: names of the model's outputs behind them.
    """

    floats: Mapping[str, int]
    integers: tuple[str, ...]
    outputs: tuple[str, ...]


def behind_floats(integer: ir.Model, feedback: Mapping[str, str] | None = None) -> BehindFloats:
    """Finds what rounds floats and what is computed from that, in bodies of If, Loop, Scan too.

    A body counts as a whole: where anything in it rounds, or reads what was rounded, all of it is
    behind floats.
    """
    uses = dict(zip(integer.graph.all_nodes(), kernels.integer_nodes(integer), strict=True))
    counts: dict[str, int] = {}
    for use in uses.values():
        if use.rounds:
            counts[use.op_type] = counts.get(use.op_type, 0) + 1
    fed: set[ir.Value] = set()
    inputs = {str(value.name): value for value in integer.graph.inputs}
    while True:  # once more for each output that goes round as an input
        behind, touched = _sweep(integer.graph, uses, fed)
        outputs = tuple(str(v.name) for v in integer.graph.outputs if v in touched)
        back = {inputs[i] for o, i in (feedback or {}).items() if o in outputs and i in inputs}
        if back <= touched:
            break
        fed |= back
    floats = dict(sorted(counts.items(), key=lambda item: -item[1]))
    names = tuple(node.name or str(node.outputs[0].name) for node in behind)
    return BehindFloats(floats, names, outputs)


def _sweep(
    graph: ir.Graph, uses: Mapping[ir.Node, kernels.NodeUse], fed: Collection[ir.Value]
) -> tuple[list[ir.Node], set[ir.Value]]:
    """Nodes with integers behind floats, and the values that are, `fed` among them."""
    behind, touched = [], set(fed)
    for node in graph:
        inside = [n for body in bodies(node) for n in body.all_nodes()]
        nodes = [node, *inside]
        reads = any(value in touched for n in nodes for value in n.inputs)
        if not reads and not any(uses[n].rounds for n in nodes):
            continue
        touched.update(value for n in nodes for value in n.outputs)
        if reads or inside:
            behind += [n for n in nodes if uses[n].has_integers]
    return behind, touched
