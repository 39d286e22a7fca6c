"""Decisions on nodes that may be quantized dynamically, and the plan made of them."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from onnxq.core.brief import brief
from onnxq.core.reason import Reason  # the codec reads annotations at run time
from onnxq.core.saved import Saved
from onnxq.errors import QConfigError, member
from onnxq.operator import DynamicNodePlan, Float, Precision
from onnxq.page.card import card_of
from onnxq.qparams import QParams  # the codec reads annotations at run time
from onnxq.targets.bias_preserving import BiasPreservingRounding  # the codec, too


class Objective(enum.Enum):
    """Quantity to make best: of a quantized model, and of the weights that it stores."""

    SPEED = "speed"
    """A node stays float where the target's measurements say that it would be slower."""
    SIZE = "size"
    """Every weight is quantized, in the fastest precision that there is."""
    ACCURACY = "accuracy"
    """Best metric: a goal of `tune` alone, which measures it."""


def as_objective(value: Objective | str) -> Objective:
    """The objective that an Objective or its name stands for."""
    found = member(Objective, value, "objective")
    if found is Objective.ACCURACY:
        raise QConfigError(
            "objective 'accuracy' asks for a search: use onnxq.tune; known here: speed, size."
        )
    return found


@dataclass(frozen=True, slots=True)
class DynamicWeightPlan:
    """How one weight of a node is stored.

    Attributes:
        slot: of the node.
        tensor: name of the float initializer.
        perm: order of its axes in which the integers are stored; None: as they are.
        qparams: of the integers, in the stored layout; None: float16.
        integer_limit: integers are clipped to [-integer_limit, integer_limit]; None: the type's own
            range.
        rounded_in: scales that integers are rounded in, where those of `qparams` are raised behind
            the rounding; in the stored layout. None: `qparams`.
        bias_preserving: how they are rounded, in the stored layout; None: to the nearest.
    """

    slot: int
    tensor: str
    perm: tuple[int, ...] | None
    qparams: QParams | None
    integer_limit: int | None = None
    rounded_in: QParams | None = None
    bias_preserving: BiasPreservingRounding | None = None


@dataclass(frozen=True, slots=True)
class QuantizeDynamic:
    """A node's weights are quantized ahead of time."""

    precision: Precision
    how: Reason
    weights: tuple[DynamicWeightPlan, ...]

    @property
    def node_plan(self) -> DynamicNodePlan:
        """Plan of the node that the operator's lowering gets."""
        found = (weight.qparams for weight in self.weights)
        return DynamicNodePlan(self.precision, tuple(q and q.in_bytes for q in found))


DynamicDecision = QuantizeDynamic | Float


@dataclass(frozen=True)
class DynamicPlan(Saved):
    """Every decision with its numbers; the rewrite carries it out and decides nothing.

    Attributes:
        model_hash: the canonical float model that it was made for.
        decisions: node name -> QuantizeDynamic or Float(reason), in graph order, subgraphs
            included.
        slower: names of the nodes that only the target's measurements leave in float.
    """

    FORMAT: ClassVar[str] = "onnxq dynamic plan 2"
    NOUN: ClassVar[str] = "a dynamic plan"
    ANEW: ClassVar[str] = "Make it anew with `onnxq quantize-dynamic --save-plan`."

    model_hash: str
    target: str
    objective: Objective
    decisions: Mapping[str, DynamicDecision]
    slower: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    __repr__ = brief
    _repr_html_ = card_of

    def __hash__(self) -> int:
        return hash(self.model_hash)

    @property
    def quantized(self) -> dict[str, QuantizeDynamic]:
        """Node name -> decision of the nodes that are quantized."""
        return {n: d for n, d in self.decisions.items() if isinstance(d, QuantizeDynamic)}
