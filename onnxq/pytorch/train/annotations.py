"""Annotations: which nodes of a traced module are quantized, and how, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.observers import ObserverSpec
from onnxq.qconfig import Part, ScaleRule
from onnxq.qdq.sum_scales import Sum


@dataclass(frozen=True, slots=True)
class AnnotatedGroup:
    """Tensors with one set of qparams, and the nodes that make them.

    Attributes:
        nodes: node of the traced module -> name of the exported tensor with its values.
        sources: those of the nodes that are observed; the others are copies of them.
        numbers: numbers among a node's arguments: (node, position, exported name, value); a node
            `operand(...)` is made for each.
        part: how qparams come from the data, and how they are trained.
        range: real interval that replaces observation where an operator guarantees it (Sigmoid).
        clamp: real bounds of the ReLU, ReLU6 or clamp that its integers carry out.
    """

    nodes: Mapping[str, str]
    sources: tuple[str, ...]
    numbers: tuple[tuple[str, int, str, float], ...]
    part: Part
    range: tuple[float, float] | None
    clamp: tuple[float, float] | None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the exported tensors."""
        return (*self.nodes.values(), *(name for _, _, name, _ in self.numbers))


@dataclass(frozen=True, slots=True)
class AnnotatedWeight:
    """A module whose weight is quantized.

    Attributes:
        node: of the traced module, which calls it.
        path: of the module.
        norm: node of the batch norm that is folded into it, or None.
        exported: name of the ONNX node.
        part: observer or fake quantization of the weight, within the integers that the target runs
            exactly.
        block_size: how many of its inputs share a scale, where it alone is quantized and what goes
            in and out is float; else None.
    """

    node: str
    path: str
    norm: str | None
    exported: str
    part: Part
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class Unannotated:
    """A tensor or node that onnxq.prepare quantizes and that has no node in the training graph.

    Attributes:
        name: of the tensor or node of the exported model.
        reason: why there is no node.
        nodes: of the exported model, which stay float for it.
    """

    name: str
    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Annotations:
    """Decisions of onnxq.prepare on a module's ONNX form, in terms of its traced nodes.

    Attributes:
        groups: activations.
        weights: in graph order.
        kept_float: nodes that stay float between quantized tensors, where ONNX Runtime would run
            them in integers by itself.
        floats: ONNX node -> why it stays in float.
        unannotated: what onnxq.prepare alone would quantize and the module cannot; it stays float
            in both.
        notes: what onnxq.prepare says.
        sums: nodes that add integers, where the target wants sums to agree; their tensors are names
            of nodes of the traced module, one for each group.
    """

    groups: tuple[AnnotatedGroup, ...]
    weights: tuple[AnnotatedWeight, ...]
    kept_float: tuple[str, ...]
    floats: Mapping[str, str]
    unannotated: tuple[Unannotated, ...]
    notes: tuple[str, ...]
    sums: tuple[Sum, ...] = ()

    def __str__(self) -> str:
        lines = []
        for group in self.groups:
            made = ", ".join(f"{node} ({tensor})" for node, tensor in group.nodes.items())
            made += "".join(f", {value:g} in {node}" for node, _, _, value in group.numbers)
            clamp = "" if group.clamp is None else " within [{:g}, {:g}]".format(*group.clamp)
            lines.append(f"activation  {made}: {group.range or describe(group.part)}{clamp}")
        for weight in self.weights:
            folded = f" with {weight.norm}" if weight.norm else ""
            blocks = f", in groups of {weight.block_size}" if weight.block_size else ""
            lines.append(
                f"weight      {weight.path}{folded} ({weight.exported}): {describe(weight.part)}"
                f"{blocks}"
            )
        lines += [f"float       {name}: {reason}" for name, reason in self.floats.items()]
        lines += [f"note        {note}" for note in self.notes]
        return "\n".join(lines)


def operand(node: str, position: int) -> str:
    """Name of the node for a number among a node's arguments."""
    return f"{node}_operand_{position}"


def describe(part: Part) -> str:
    """The observer, and how its scale goes on where it is trained."""
    if isinstance(part, ObserverSpec):
        return f"{part}, observed only"
    return f"{part.observer}" if part.scale is ScaleRule.OBSERVED else f"{part.observer}, learned"


ANNOTATIONS = "onnxq_annotations"
"""Key of the meta of a prepared module: its Annotations."""
