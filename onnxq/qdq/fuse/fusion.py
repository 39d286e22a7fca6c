"""A node that computes on integers, or why it does not."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.operator import NodePlan, Operator, Rule


@dataclass(frozen=True, slots=True)
class Flattened:
    """Batches of matrices as one matrix, and the shape that the result gets back."""

    matrix: tuple[int, int]
    result: tuple[int, ...]


@dataclass(slots=True)
class Fusion:
    """A node that computes on integers, and what it takes along.

    Attributes:
        tail: the node whose outputs it gives: itself, or an Add that brings its bias.
        plan: qparams per slot.
        quantizers: per output slot the QuantizeLinear nodes, all alike, whose integers it gives.
        absorbed: nodes between it and its quantizers that it carries out.
        new_bias: an int32 bias that has to be written, with its slot.
        flattened: the shapes where its first input is made a matrix; None: it is not.
    """

    node: ir.Node
    tail: ir.Node
    operator: Operator
    view: ir.Node
    rule: Rule
    plan: NodePlan
    inputs: list[ir.Value | None]
    quantizers: dict[int, list[ir.Node]]
    absorbed: list[ir.Node] = field(default_factory=list)
    new_bias: tuple[int, npt.NDArray[np.int32]] | None = None
    flattened: Flattened | None = None

    def give_floats(self) -> None:
        """Leaves its results in float32, what was absorbed and the quantizers where they are."""
        self.quantizers.clear()
        self.absorbed.clear()
        self.plan = NodePlan(self.plan.inputs, tuple(None for _ in self.plan.outputs))


@dataclass(frozen=True, slots=True)
class Kept:
    """Why a node stays between DequantizeLinear and QuantizeLinear."""

    reason: str
