"""The nodes of a model whose sums depend on the machine, and which of these differ in each."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.checking.differences import Differences
from onnxq.checking.prediction import INTEGERS, MAX_PAIRS, WEIGHTS, DifferingPair, LayerPrediction
from onnxq.graph.walk import attribute_values
from onnxq.graph.weights import constant
from onnxq.operator import IntegerCall
from onnxq.operator.nodes import input_at
from onnxq.ort.node_kinds import value_types
from onnxq.targets.accumulation import Overflows, SaturationMode, joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.operator import IntegerOperator


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
    """One node whose sums depend on the machine, on machines of one arithmetic.

    Attributes:
        possible: pairs that can differ; None: its weights are not known before it runs.
    """

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
        inputs[slot] = np.full([UNKNOWN] * min(rank, 2) + [1] * (rank - 2), _lowest(x))
    call = IntegerCall(node.op_type, inputs, attributes=attribute_values(node))
    found = operator.risks(call, saturation_mode)
    pairs_of = WEIGHTS if operator.weights else INTEGERS
    if found is None:
        return MachineLayer(node, 0, (), pairs_of)
    if unknown:
        return MachineLayer(node, None, (), pairs_of)
    return MachineLayer(node, len(found.count), tuple(np.unique(found.channel).tolist()), pairs_of)


def _lowest(x: Array) -> Array:
    return np.array(-128 if x.dtype == np.int8 else 0, x.dtype)


def stand_in(value: ir.Value | None, types: Mapping[ir.Value, ir.DataType]) -> Array | None:
    """A constant; or an array of the right type without elements."""
    if value is None:
        return None
    tensor = constant(value)
    if tensor is not None:
        return tensor.numpy()
    dtype = value.dtype or types.get(value, ir.DataType.FLOAT)
    return np.zeros(0, dtype.numpy())
