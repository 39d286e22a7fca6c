"""Sequential pipeline: Hessians of the inputs of a model's layers, in memory of a few layers.

    float model        subgraph k  ->  x of group k         x in float
    quantized model    subgraph k  ->  xq of group k        what the integers found so far make of
    it

Both run batch by batch on weights that are mapped from disk. Behind each group, the caller that
iterates over `groups` adds its integers; the quantized model's next subgraph runs with them.

Stages are nodes up to the next tensor that linear layers read, then these layers:

    nodes ahead of group 1 | layers of group 1 ... nodes up to group 2 | layers of group 2 ...

Linear layers that read one tensor are a group: they see the same inputs, and are quantized together
as soon as these are known. A stage's nodes hold layers of earlier groups alone, whose integers are
final; each node runs once, so that the work is linear in the model.
"""

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array, Singles
from onnxq.core.threads import workers
from onnxq.errors import CalibrationError, listed
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator.nodes import input_at
from onnxq.samples.inputs import Batch
from onnxq.weights.hessian import Hessian, InputHessians, InputSums, can_be_summed, parts_of_inputs
from onnxq.weights.subgraphs import ActivationCache, SpilledArrays, Subgraph, cut, subgraphs_of
from onnxq.weights.weight_plan import Groupwise, WeightPlan
from onnxq.weights.write_weights import FLOAT_ACCURACY, GroupwiseWriter

Integers = Mapping[str, Mapping[str, ir.TensorProtocol]]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensor whose rows linear layers multiply.

    Attributes:
        tensor: its name.
        transposed: whether its columns are these rows: the last axis but one is summed over.
    """

    tensor: str
    transposed: bool

    def rows(self, array: Array) -> Singles:
        """float32 (rows, inputs) of the tensor's array."""
        last = np.swapaxes(array, -1, -2) if self.transposed else array
        return np.ascontiguousarray(last.reshape(-1, last.shape[-1]), np.float32)


@dataclass(frozen=True, slots=True)
class LayersOfInput:
    """Linear layers that are quantized together.

    Attributes:
        inputs: that they share; None: nothing can be known of them, as in bodies of loops, or
            nothing has to be, as of embeddings.
    """

    inputs: Inputs | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SequentialStage:
    """A group, and what has to run before its inputs are known."""

    subgraph: Subgraph | None
    group: LayersOfInput | None


def stages_of(model: ir.Model, plan: WeightPlan) -> list[SequentialStage]:
    """The stages of a model, in order."""
    left = dict(plan.quantized)
    grouped: dict[Inputs, list[str]] = {}
    for node in model.graph:
        decision = left.get(node_name(node))
        if decision is not None and not decision.embedding:
            del left[node_name(node)]
            grouped.setdefault(inputs_of(node, decision), []).append(node_name(node))
    groups = {nodes[0]: LayersOfInput(inputs, tuple(nodes)) for inputs, nodes in grouped.items()}
    found = [SequentialStage(None, LayersOfInput(None, tuple(left)))] if left else []
    outputs = [value_name(value) for value in model.graph.outputs]
    subgraphs = subgraphs_of(model.graph, outputs, groups)
    if subgraphs and subgraphs[0].layer:  # a linear layer comes first
        found.append(SequentialStage(None, groups[subgraphs[0].layer]))
    for subgraph, behind in zip(subgraphs, [*subgraphs[1:], None], strict=True):
        found.append(SequentialStage(subgraph, groups[behind.layer] if behind else None))
    return found


def inputs_of(node: ir.Node, decision: Groupwise) -> Inputs:
    """The tensor beside a linear layer's weight, and whether it is transposed."""
    left = decision.slot == 0
    transposed = left
    if node.op_type == "Gemm":
        transposed = left != bool(node.attributes.get_int("transB" if left else "transA", 0))
    return Inputs(value_name(input_at(node, 1 - decision.slot)), transposed)


def last_reads(stages: Sequence[SequentialStage]) -> dict[str, int]:
    """Tensor -> index of the last stage that reads it, to run or to see."""
    found: dict[str, int] = {}
    for index, stage in enumerate(stages):
        if stage.subgraph is not None:
            found |= dict.fromkeys(stage.subgraph.reads, index)
        if stage.group is not None and stage.group.inputs is not None:
            found[stage.group.inputs.tensor] = index
    return found


@dataclass(frozen=True, slots=True, eq=False)
class SequentialPipeline:
    """Stages of a model, run on samples in order, in float and beside it in integers.

    Attributes:
        batches: of samples, read once; none: no group has Hessians.
        integers: linear layer -> tensors of its integers; the caller adds more from group to
            group. None: only the float model runs.
    """

    model: ir.Model
    plan: WeightPlan
    batches: Iterable[Batch]
    integers: Integers | None = None

    def groups(self, seen: Sequence[str]) -> Iterator[tuple[LayersOfInput, InputHessians | None]]:
        """Every group in order, with the Hessians of its inputs.

        Args:
            seen: layers whose Hessians are wanted; behind the last one, nothing runs.
        """
        stages = stages_of(self.model, self.plan)
        wanted = [i for i, stage in enumerate(stages) if _wants(stage, seen)]
        with contextlib.ExitStack() as stack:
            # sums are the same whatever the number of cores, with one BLAS thread
            stack.enter_context(workers(1))
            run = _Run(self, stages, seen, stack) if wanted else None
            for index, stage in enumerate(stages):
                runs = run is not None and index <= wanted[-1]
                inputs = run.seen_at(index) if run is not None and runs else None
                if stage.group is not None:
                    yield stage.group, inputs
                if run is not None and runs:
                    run.drop_ended(index)


def _wants(stage: SequentialStage, seen: Sequence[str]) -> bool:
    """Whether a Hessian is wanted of the stage's group."""
    group = stage.group
    return group is not None and group.inputs is not None and not {*seen}.isdisjoint(group.nodes)


class _Run:
    """Activation caches while the stages run once."""

    def __init__(
        self,
        pipeline: SequentialPipeline,
        stages: Sequence[SequentialStage],
        seen: Sequence[str],
        stack: contextlib.ExitStack,
    ) -> None:
        self.pipeline, self.stages, self.seen = pipeline, stages, seen
        self.nodes = {node_name(node): node for node in pipeline.model.graph}
        self.last = last_reads(stages)
        self.ended: dict[int, list[str]] = {}
        for tensor, index in self.last.items():
            self.ended.setdefault(index, []).append(tensor)
        feeds, self.batches = stack.enter_context(SpilledArrays()), 0
        for batch in pipeline.batches:
            self.batches += 1
            for tensor, array in batch.items():
                feeds.add(tensor, array)
        self.floats = stack.enter_context(ActivationCache(feeds, self.batches))
        self.quantized = None
        if pipeline.integers is not None:
            self.quantized = stack.enter_context(ActivationCache(feeds, self.batches))

    def seen_at(self, index: int) -> InputHessians | None:
        """Inputs of a stage's group, behind its subgraph; None: none are wanted."""
        stage = self.stages[index]
        if stage.subgraph is not None:
            self._advance(stage.subgraph)
        if stage.group is None or not _wants(stage, self.seen):
            return None
        group = stage.group
        parts = parts_of_inputs(self.pipeline.plan.quantized[group.nodes[0]].inputs)
        if len(parts) > 1:
            return InputHessians(parts, functools.partial(self._summed, group))
        found = InputHessians.whole(self._summed(group, parts[0]))
        self.drop_ended(index)  # memory for the solver
        return found

    def drop_ended(self, index: int) -> None:
        """Forgets tensors that no stage behind this one reads."""
        for tensor in self.ended.pop(index, ()):
            self.floats.drop(tensor)
            if self.quantized is not None:
                self.quantized.drop(tensor)

    def _advance(self, subgraph: Subgraph) -> None:
        gives = [tensor for tensor in subgraph.gives if tensor in self.last]
        if not gives:
            return
        part = cut(self.pipeline.model, self.nodes, subgraph, gives)
        self.floats.advance(part)
        if self.quantized is not None:
            self._write_integers(part)
            self.quantized.advance(part)

    def _write_integers(self, part: ir.Model) -> None:
        """Writes the integers found so far into the linear layers of a part."""
        writer, integers = GroupwiseWriter(part, FLOAT_ACCURACY), self.pipeline.integers or {}
        for node, _ in list(walk(part.graph)):
            name = node_name(node)
            if name in integers:
                writer.write(node, integers[name], self.pipeline.plan.quantized[name])

    def _summed(self, group: LayersOfInput, part: slice) -> Hessian:
        inputs = group.inputs
        assert inputs is not None
        size = part.stop - part.start
        is_expert = bool(self.pipeline.plan.quantized[group.nodes[0]].part_of)
        has_cross = self.quantized is not None and not is_expert
        sums = InputSums(inputs.tensor, size, has_cross=has_cross)
        for batch in range(self.batches):
            wanted = inputs.rows(self.floats.get(inputs.tensor, batch))[:, part]
            if self.quantized is None:
                sums.add(wanted, None)
                continue
            seen = inputs.rows(self.quantized.get(inputs.tensor, batch))[:, part]
            if can_be_summed(wanted) and not can_be_summed(seen):
                raise CalibrationError(self._not_finite(inputs.tensor))
            sums.add(seen, wanted if has_cross else None)  # other tokens go to a quantized expert
        if not sums.count and is_expert:
            return Hessian.unknown(size)  # an expert that no sample goes to
        return sums.hessian()

    def _not_finite(self, tensor: str) -> str:
        """The remedy for a tensor that is finite in the float model alone."""
        ahead = linear_ahead(self.pipeline.model, tensor, self.pipeline.integers or {})
        return (
            f"tensor '{tensor}', which linear layers read, is finite in the float model, and "
            f"NaN, Inf or huge behind the integers of {listed(ahead)}: a function between them, "
            "such as Log, takes no rounded weights. Leave them in float: "
            f"{' '.join(f'--exclude {name}' for name in ahead)}"
        )


def linear_ahead(model: ir.Model, tensor: str, layers: Collection[str]) -> list[str]:
    """The nearest of these layers ahead of a tensor: none of them stands between."""
    made = {value_name(value): node for node in model.graph for value in node.outputs}
    found: dict[str, None] = {}
    todo, seen = [tensor], {tensor}
    while todo:
        node = made.get(todo.pop())
        if node is None:
            continue
        if node_name(node) in layers:
            found[node_name(node)] = None
            continue
        inputs = {value_name(value) for value in node.inputs if value is not None}
        todo.extend(inputs - seen)
        seen |= inputs
    return [*found]
