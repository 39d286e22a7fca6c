"""Integers of every layer of a plan, group after group, by whoever does the work.

    Hessian of the group's inputs  ->  a solver, once      onnxq.weights.solve
    rows of its weights, PART_BYTES at a time  ->  integers   any Executor
    integers of a whole weight  ->  the QuantizedWeightsFile    before the next weight is begun

What the file holds is not made again: a job that was killed goes on behind its last record, and
comes to the same bytes, as sums and solvers see the same numbers in the same order.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array, Singles
from onnxq.core.threads import workers
from onnxq.dynamic.known_inputs import ALIKE, UNKNOWN, Known, power_behind_norm, raw_tensors
from onnxq.graph.edit import all_values
from onnxq.graph.walk import node_name, walk
from onnxq.jobs import in_order
from onnxq.operator.nodes import input_at
from onnxq.qparams.group_spec import GroupSpec
from onnxq.samples.inputs import Batch
from onnxq.weights.experts import unfolded
from onnxq.weights.plan_weights import rows_of
from onnxq.weights.prequantized_groups import prequantized_integers
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile
from onnxq.weights.sequential import Integers, LayersOfInput, SequentialPipeline
from onnxq.weights.solve import RowSolver, prepared
from onnxq.weights.weight_plan import Groupwise, WeightPlan

Packed = dict[str, Array]


PART_BYTES, GPTQ_PART_BYTES = 1 << 22, 1 << 24
"""Weights that are solved at a time, as float32; solvers need some 8 times as much in between, and
gptq goes through all columns of each part once more."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightRows:
    """Rows of a weight."""

    node: str
    start: int
    spec: GroupSpec
    rows: Singles

    def __str__(self) -> str:
        return f"rows {self.start} to {self.start + len(self.rows)} of the weight of '{self.node}'"


@dataclass(frozen=True, slots=True, eq=False)
class Solving:
    """Work of a worker: packed integers of each part, as `PackedGroups` has them."""

    solver: RowSolver

    def __call__(self) -> Callable[[WeightRows], Packed]:
        """Function of a part."""
        return self._packed

    def _packed(self, part: WeightRows) -> Packed:
        with workers(1):  # sums are the same whoever makes them
            return dict(self.solver(part.rows, part.spec).packed().arrays)


def find_integers(
    model: ir.Model,
    plan: WeightPlan,
    batches: Iterable[Batch],
    integers: QuantizedWeightsFile,
    executor: Executor | None = None,
) -> Integers:
    """Layer -> tensors of its integers, which the file holds.

    `batches`: of samples; read where a method needs to see inputs, and nowhere else.
    `integers`: holds those that were found before; the others are added.
    """
    model = unfolded(model, plan.mixtures)
    nodes = {node_name(node): node for node, _ in walk(model.graph)}
    keys = {name: decision.stored_as for name, decision in plan.quantized.items()}
    # readers of one weight share integers
    first = {key: name for name, key in reversed(keys.items())}
    found: dict[str, Mapping[str, ir.TensorProtocol]] = {}
    for name, key in keys.items():
        if (tensors := integers.find(key)) is not None:
            found[name] = tensors
    for name in [name for name in first.values() if name not in found]:
        if (decision := plan.quantized[name]).given:
            value = input_at(nodes[name], decision.slot)
            rows = prequantized_integers(value, decision.inputs_first, decision.spec)
            tensors = integers.append(keys[name], dict(rows.packed().arrays))
            found |= {other: tensors for other, key in keys.items() if key == keys[name]}
    missing = [name for name in first.values() if name not in found]
    seen = [name for name in missing if plan.quantized[name].method.needs_samples]
    raw = raw_tensors(model)
    values = {str(value.name): value for value in all_values(model.graph)}
    for group, inputs in SequentialPipeline(model, plan, batches, found).groups(seen):
        left = [name for name in group.nodes if name in missing]
        for method in dict.fromkeys(plan.quantized[name].method for name in left):
            same = [n for n in left if plan.quantized[n].method is method]
            parts = (p for n in same for p in parts_of(nodes[n], plan.quantized[n]))
            solver = prepared(method, inputs, _known(group, values, raw))
            for name, packed in _joined(_solved(executor, solver, parts)):
                tensors = integers.append(keys[name], packed)
                found |= {other: tensors for other, key in keys.items() if key == keys[name]}
    return found


def _known(group: LayersOfInput, values: Mapping[str, ir.Value], raw: Collection[str]) -> Known:
    """The model's word on the numbers that a group reads."""
    inputs = group.inputs
    if inputs is None:
        return UNKNOWN
    if inputs.tensor in raw:
        return Known(alike=ALIKE)
    return Known(power=None if inputs.transposed else power_behind_norm(values[inputs.tensor]))


def _solved(
    executor: Executor | None, solver: RowSolver, parts: Iterable[WeightRows]
) -> Iterator[tuple[str, Packed]]:
    """(layer, packed integers) of each part, in order."""
    asked: list[str] = []

    def noted() -> Iterator[WeightRows]:
        for part in parts:
            asked.append(part.node)
            yield part

    made = in_order(executor, Solving(solver), noted())
    for index, packed in enumerate(made):
        yield asked[index], packed


def parts_of(node: ir.Node, decision: Groupwise) -> Iterator[WeightRows]:
    """Parts of a layer's weight, read as they are asked for."""
    value = input_at(node, decision.slot)
    part_bytes = GPTQ_PART_BYTES if decision.method.needs_samples else PART_BYTES
    rows = max(1, part_bytes // (decision.inputs * np.dtype(np.float32).itemsize))
    for start in range(0, decision.outputs, rows):
        stop = min(start + rows, decision.outputs)
        yield WeightRows(
            node_name(node), start, decision.spec, rows_of(value, decision, start, stop)
        )


def _joined(parts: Iterable[tuple[str, Packed]]) -> Iterator[tuple[str, Packed]]:
    """(layer, packed integers of all its rows), as soon as it has all."""
    for name, packed in itertools.groupby(parts, key=lambda part: part[0]):
        rows = [arrays for _, arrays in packed]  # each row ends on a byte
        yield name, {key: np.concatenate([part[key] for part in rows]) for key in rows[0]}
