"""Prediction of predict: a value to print, to save as JSON, to hold against machines."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.checking.differences import Differences, Unit
from onnxq.core.arrays import Array
from onnxq.core.brief import brief
from onnxq.core.saved import Saved
from onnxq.errors import DifferenceError, QConfigError, listed, nearest
from onnxq.graph.walk import attribute_values
from onnxq.graph.weights import constant
from onnxq.operator import IntegerCall, IntegerOperator
from onnxq.operator.nodes import input_at
from onnxq.ort.node_kinds import value_types
from onnxq.page.card import card_of
from onnxq.targets import Target, resolve
from onnxq.targets.accumulation import Overflows, SaturationMode, joined

WEIGHTS, INTEGERS = "weights", "integers"
MAX_PAIRS = 8  # of a layer that are named; the rest are counted


@dataclass(frozen=True, slots=True)
class DifferingPair:
    """Two products of weights, or two integers, that a machine adds otherwise.

    Attributes:
        channel: output channel; column of a matrix product; 0 of QLinearAdd.
        first: place of one weight: in W[channel].reshape(-1) of a convolution, row of a matrix; of
            QLinearAdd, the integer of A.
        second: of the other.
        count: sums that differed.
    """

    channel: int
    first: int
    second: int
    count: int


@dataclass(frozen=True, slots=True)
class LayerPrediction:
    """A node whose sums depend on the machine, on one kind of machine.

    Of a node that multiplies integers, pairs are of weights, whose products' sum leaves int16; of
    QLinearAdd and QLinearMul, pairs of integers, which that machine rounds otherwise
    (onnxq.targets.accumulation).

    Attributes:
        name: of the node; where ONNX Runtime fuses it, of the float operator.
        possible: pairs that differ with some activations (each output channel has its own); None:
            the weights are known at run time alone.
        channels: output channels that have such a pair.
        overflowing: channels where a sum differed on the samples.
        overflows: such sums.
        changed: elements of the accumulator that they changed.
        largest_change: of one sum.
        pairs: that differed most often, at most MAX_PAIRS.
        differing: elements of the results, also by what came in.
        largest: difference, in `unit`.
        pairs_of: WEIGHTS or INTEGERS.
        error: of floats, the largest difference as it is.
        size: of floats, the largest magnitude, where one differed.
    """

    name: str
    op_type: str
    possible: int | None
    channels: tuple[int, ...]
    overflowing: tuple[int, ...] = ()
    overflows: int = 0
    changed: int = 0
    largest_change: int = 0
    pairs: tuple[DifferingPair, ...] = ()
    elements: int = 0
    differing: int = 0
    largest: int = 0
    unit: Unit = Unit.LSB
    pairs_of: str = WEIGHTS
    error: float = 0.0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputPrediction:
    """An output of the whole model on one kind of machine, beside exact arithmetic."""

    name: str
    elements: int
    differing: int
    largest: int
    unit: Unit
    error: float = 0.0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class MachinePrediction:
    """Results of machines of one arithmetic, beside exact integers.

    Attributes:
        saturation_mode: an onnxq.targets.accumulation.SaturationMode's value.
        layers: nodes whose sums depend on the machine, in graph order.
        outputs: of the model; empty without samples.
    """

    targets: tuple[str, ...]
    saturation_mode: str
    layers: tuple[LayerPrediction, ...]
    outputs: tuple[OutputPrediction, ...]

    @property
    def differing_layers(self) -> tuple[LayerPrediction, ...]:
        """Layers whose own sums differed on the samples: the causes."""
        return tuple(layer for layer in self.layers if layer.overflows)

    @property
    def risky_layers(self) -> tuple[LayerPrediction, ...]:
        """Layers with pairs that can differ, or with weights not known."""
        return tuple(layer for layer in self.layers if layer.possible != 0)

    @property
    def differs(self) -> bool:
        """Whether an integer differed on the samples."""
        return bool(self.differing_layers) or any(o.differing for o in self.outputs)

    @property
    def may_differ(self) -> bool:
        """Whether an integer can differ, whatever the samples."""
        return self.differs or bool(self.risky_layers)


@dataclass(frozen=True)
class Prediction(Saved):
    """On which machines a model's integers differ from exact ones, where, by how much, and why.

    Floats that nodes round are the machine's own in their last bits, and left aside: see `floats`.

    Attributes:
        batches: that were run; 0: from the weights alone.
        machines: one entry per kind of arithmetic among the targets, exact ones included.
        floats: op_type -> nodes that round floats; their last bits may differ between machines.
            What is said of integers holds for equal integers: integers computed from these floats
            may be one LSB apart, which is not predicted.
        behind_floats: names of the nodes that make such integers or compute with them, in graph
            order.
        float_outputs: names of the outputs that are computed from such floats.
        decided: integers that such floats decided on the samples.
        near_ties: of these, such as lie so near to a tie that last bits may decide otherwise (see
            onnxq.checking.rounding).
    """

    FORMAT: ClassVar[str] = "onnxq prediction 1"
    NOUN: ClassVar[str] = "a prediction"
    ANEW: ClassVar[str] = "Run predict anew."
    DERIVED: ClassVar[tuple[str, ...]] = ("differing", "may_differ")

    model_hash: str
    batches: int
    machines: tuple[MachinePrediction, ...]
    floats: Mapping[str, int]
    behind_floats: tuple[str, ...] = ()
    float_outputs: tuple[str, ...] = ()
    decided: int = 0
    near_ties: int = 0

    __repr__ = brief
    _repr_html_ = card_of

    def on(self, target: str | Target) -> MachinePrediction:
        """Prediction for one target, or for the machine that a name such as "auto" stands for."""
        name = resolve(target).name
        for machine in self.machines:
            if name in machine.targets:
                return machine
        asked = [name for machine in self.machines for name in machine.targets]
        raise QConfigError(
            f"target '{name}' is not in this prediction, which has {', '.join(asked)}."
            f"{nearest(name, asked)} Name it in `machines` (--machines), or 'all'."
        )

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of the targets where an integer differed on the samples."""
        return tuple(name for m in self.machines if m.differs for name in m.targets)

    @property
    def may_differ(self) -> tuple[str, ...]:
        """Names of the targets where an integer can differ, those of `differing` included."""
        return tuple(name for m in self.machines if m.may_differ for name in m.targets)

    def check(self) -> None:
        """Returns where no named machine would differ on the samples, floats aside."""
        bad = [m for m in self.machines if (m.differs if self.batches else m.may_differ)]
        if not bad:
            return
        lines = []
        for m in bad:
            layers = m.differing_layers if self.batches else m.risky_layers
            lines.append(f"  {', '.join(m.targets)}: {listed([layer.name for layer in layers])}")
        verb = "differ" if self.batches else "can differ"
        raise DifferenceError(
            f"the integers {verb} on {sum(len(m.targets) for m in bad)} target(s), from these "
            "layers on:\n"
            + "\n".join(lines)
            + "\nQuantize for all of them with `--target portable` (its notes name sums that "
            "still differ somewhere), or for the target that it will run on."
        )


# --- The nodes of a model whose sums depend on the machine, and which of these differ in each


UNKNOWN = 32  # size of a weight that stands for one known at run time alone


@dataclass(slots=True)
class LayerCounts:
    """Differences that were found in a layer, in one batch or in many."""

    heard: Overflows | None = None
    sums: Differences = field(default_factory=Differences)

    def add(self, other: LayerCounts) -> None:
        """Adds those of later batches."""
        if other.heard is not None:
            self.heard = joined([*filter(None, [self.heard]), other.heard])
        self.sums.add(other.sums)


class MachineLayer:
    """One node whose sums depend on the machine, on machines of one arithmetic."""

    def __init__(
        self, node: ir.Node, possible: int | None, channels: tuple[int, ...], pairs_of: str
    ) -> None:
        self._pairs_of = pairs_of
        self.possible = possible
        self._channels = channels
        self._name, self._op_type = node.name or "", node.op_type
        self.outputs = [str(value.name) for value in node.outputs if value.name]
        self._lock = threading.Lock()
        self._heard: list[Overflows] = []
        self._sums = Differences()

    def hear(self, found: Overflows) -> None:
        """Takes down what differed; from any thread."""
        with self._lock:
            self._heard.append(found)

    def compare(self, got: object, wanted: object) -> None:
        """Counts what differs in one result of one batch; the same object where nothing does."""
        if not isinstance(wanted, np.ndarray):
            return
        if got is wanted:
            self._sums.same(wanted)
        else:
            self._sums.update(got, wanted)

    def take(self) -> LayerCounts:
        """Counts since the last call, which are forgotten here."""
        found = LayerCounts(joined(self._heard), self._sums)
        self._heard, self._sums = [], Differences()
        return found

    def result(self, seen: LayerCounts) -> LayerPrediction:
        """Prediction of the layer, of these counts."""
        found, sums = seen.heard, seen.sums
        counts = (sums.elements, sums.differing, sums.largest, sums.unit)
        floats = (sums.error, sums.size)
        if found is None:
            known = (self._name, self._op_type, self.possible, self._channels)
            return LayerPrediction(*known, (), 0, 0, 0, (), *counts, self._pairs_of, *floats)
        most = np.argsort(-found.count, kind="stable")[:MAX_PAIRS]
        return LayerPrediction(
            self._name,
            self._op_type,
            self.possible,
            self._channels,
            tuple(np.unique(found.channel).tolist()),
            int(found.count.sum()),
            found.changed,
            found.change,
            tuple(
                DifferingPair(
                    *(int(a[i]) for a in (found.channel, found.first, found.second, found.count))
                )
                for i in most
            ),
            *counts,
            self._pairs_of,
            *floats,
        )


def find_layers(integer: ir.Model, saturation_mode: SaturationMode) -> dict[str, MachineLayer]:
    """Name of the first output -> MachineLayer, in graph order, bodies included."""
    types = value_types(integer)
    layers = {}
    for node in integer.graph.all_nodes():
        operator = catalog.find_integer(node.op_type, node.domain)
        if operator is None or not operator.depends_on_machine():
            continue
        layers[str(node.outputs[0].name)] = _layer(node, operator, types, saturation_mode)
    return layers


def _layer(
    node: ir.Node,
    operator: IntegerOperator,
    types: Mapping[ir.Value, ir.DataType],
    saturation_mode: SaturationMode,
) -> MachineLayer:
    inputs = [stand_in(value, types) for value in node.inputs]
    unknown = [slot for slot in operator.weights if constant(node.inputs[slot]) is None]
    for slot in unknown:
        value, x = input_at(node, slot), inputs[slot]
        assert x is not None, "operators need their weights"
        rank = 2 if value.shape is None else len(value.shape)
        lowest = np.array(-128 if x.dtype == np.int8 else 0, x.dtype)
        inputs[slot] = np.full([UNKNOWN] * min(rank, 2) + [1] * (rank - 2), lowest)
    call = IntegerCall(node.op_type, inputs, attributes=attribute_values(node))
    found = operator.risks(call, saturation_mode)
    pairs_of = WEIGHTS if operator.weights else INTEGERS
    if found is None:
        return MachineLayer(node, 0, (), pairs_of)
    if unknown:
        return MachineLayer(node, None, (), pairs_of)
    return MachineLayer(node, len(found.count), tuple(np.unique(found.channel).tolist()), pairs_of)


def stand_in(value: ir.Value | None, types: Mapping[ir.Value, ir.DataType]) -> Array | None:
    """A constant; or an array of the right type without elements."""
    if value is None:
        return None
    tensor = constant(value)
    if tensor is not None:
        return tensor.numpy()
    dtype = value.dtype or types.get(value, ir.DataType.FLOAT)
    return np.zeros(0, dtype.numpy())
