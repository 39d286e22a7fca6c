"""Decisions on nodes that may be quantized dynamically, and the plan made of them."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.core.atomic import write_atomically
from onnxq.errors import CalibrationError, OnnxqError, member
from onnxq.operator import DynamicForm, DynamicNodePlan, Float
from onnxq.qparams import QParams

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "onnxq dynamic plan 1"
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, OnnxqError)
"""Errors that reading another file, or an altered one, raises."""


class Objective(enum.Enum):
    """Aim of dynamic quantization."""

    SPEED = "speed"
    """A node stays float where the target's measurements say that it would be slower."""
    SIZE = "size"
    """Every weight is quantized, in the fastest form that there is."""


def as_objective(value: Objective | str) -> Objective:
    """The objective that an Objective or its name stands for.

    Raises:
        QConfigError: it is neither.
    """
    return member(Objective, value, "objective")


@dataclass(frozen=True, slots=True)
class DynamicWeightPlan:
    """How one weight of a node is stored.

    Attributes:
        slot: of the node.
        tensor: name of the float initializer.
        perm: order of its axes in which the codes are stored; None: as they are.
        qparams: of the codes, in the stored layout; None: float16.
        code_limit: codes are clipped to [-code_limit, code_limit]; None: the type's own range.
    """

    slot: int
    tensor: str
    perm: tuple[int, ...] | None
    qparams: QParams | None
    code_limit: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold."""
        return {
            "slot": self.slot,
            "tensor": self.tensor,
            "perm": None if self.perm is None else list(self.perm),
            "qparams": None if self.qparams is None else self.qparams.to_dict(),
            "code_limit": self.code_limit,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DynamicWeightPlan:
        """The inverse of to_dict."""
        perm, qparams = data["perm"], data["qparams"]
        return cls(
            data["slot"],
            data["tensor"],
            None if perm is None else tuple(perm),
            None if qparams is None else QParams.from_dict(qparams),
            data["code_limit"],
        )


@dataclass(frozen=True, slots=True)
class QuantizeDynamic:
    """A node's weights are quantized ahead of time.

    Attributes:
        form: how it runs.
        how: in words, for people.
        weights: one per weight of the operator's dynamic rule, in its order.
    """

    form: DynamicForm
    how: str
    weights: tuple[DynamicWeightPlan, ...]

    @property
    def node_plan(self) -> DynamicNodePlan:
        """Plan of the node that the operator's lowering gets."""
        return DynamicNodePlan(self.form, tuple(weight.qparams for weight in self.weights))


DynamicDecision = QuantizeDynamic | Float


@dataclass(frozen=True, eq=False)
class DynamicPlan:
    """Every decision with its numbers; the rewrite carries it out and decides nothing.

    Attributes:
        model_hash: the canonical float model that it was made for.
        target: name of the target.
        objective: what it was made for.
        decisions: node name -> QuantizeDynamic or Float(reason), in graph order, subgraphs
            included.
        slower: names of the nodes that only the target's measurements leave in float.
        notes: what a user should know.
    """

    model_hash: str
    target: str
    objective: Objective
    decisions: Mapping[str, DynamicDecision]
    slower: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DynamicPlan) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.model_hash)

    @property
    def quantized(self) -> dict[str, QuantizeDynamic]:
        """Node name -> decision of the nodes that are quantized."""
        return {n: d for n, d in self.decisions.items() if isinstance(d, QuantizeDynamic)}

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold; float32 survives exactly."""
        return {
            "format": FORMAT,
            "model_hash": self.model_hash,
            "target": self.target,
            "objective": self.objective.value,
            "decisions": {name: dynamic_to_dict(d) for name, d in self.decisions.items()},
            "slower": list(self.slower),
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> None:
        """Writes JSON, atomically.

        Raises:
            OutputError: the path cannot be written.
        """
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False)
        write_atomically(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | Path) -> DynamicPlan:
        """Reads what `save` wrote.

        Raises:
            CalibrationError: the file is missing or is not a plan of this version.
        """
        try:
            return dynamic_plan_from(json.loads(Path(path).read_text()))
        except UNREADABLE as error:
            raise CalibrationError(
                f"{path}: not a dynamic plan that this version of onnxq wrote ({error!r}). "
                "Make it anew with `onnxq quantize-dynamic --save-plan`."
            ) from error


def dynamic_plan_from(data: Any) -> DynamicPlan:
    """The inverse of DynamicPlan.to_dict.

    Raises:
        KeyError, TypeError, ValueError: the data are no dynamic plan.
    """
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r}")
    return DynamicPlan(
        data["model_hash"],
        data["target"],
        Objective(data["objective"]),
        {name: dynamic_from_dict(d) for name, d in data["decisions"].items()},
        tuple(data["slower"]),
        tuple(data["notes"]),
    )


def dynamic_part(data: Mapping[str, Any]) -> dict[str, QuantizeDynamic]:
    """Dynamic nodes of a static plan, from plain values.

    Raises:
        KeyError, TypeError, ValueError: the data are something else.
    """
    decisions = {name: dynamic_from_dict(d) for name, d in data.items()}
    quantized = {n: d for n, d in decisions.items() if isinstance(d, QuantizeDynamic)}
    if len(quantized) < len(decisions):
        raise ValueError("dynamic")
    return quantized


def dynamic_to_dict(decision: DynamicDecision) -> dict[str, object]:
    """Plain values that JSON can hold."""
    if isinstance(decision, Float):
        return {"float": decision.reason}
    return {
        "form": decision.form.value,
        "how": decision.how,
        "weights": [weight.to_dict() for weight in decision.weights],
    }


def dynamic_from_dict(data: Mapping[str, Any]) -> DynamicDecision:
    """The inverse of dynamic_to_dict.

    Raises:
        KeyError, TypeError, ValueError: the data are no decision.
    """
    if "float" in data:
        return Float(str(data["float"]))
    weights = tuple(DynamicWeightPlan.from_dict(weight) for weight in data["weights"])
    return QuantizeDynamic(DynamicForm(data["form"]), str(data["how"]), weights)
