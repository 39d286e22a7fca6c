"""Times of the nodes of one model in the forms that they were measured in, on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from onnxq.core.saved import Saved
from onnxq.operator import Precision

if TYPE_CHECKING:
    from onnxq.tuning.timing.node_group import NodeGroup

SHARED = {
    **{each: Precision.FLOAT for each in Precision if each.runs_in_float},
    Precision.FLOAT_BETWEEN_QDQ: Precision.FLOAT,
    Precision.INT8: Precision.INT8_FLOAT_OUTPUT,
    Precision.INT8_FLOAT_OUTPUT: Precision.INT8,
}
"""Forms that run the kernel of another one, or nearly, where they were not measured."""


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Times of one node.

    Attributes:
        ns: name of a form -> nanoseconds on one thread, conversions not counted; of float, in the
            float model. A node that runs inside of another one's kernel takes 0.
        around: name of a form -> nanoseconds of conversions and changes of layout that it needed
            in the model in which the form was measured.
        behind: name of the form of the node ahead -> nanoseconds of this one in float, in models
            that onnxq made: what ONNX Runtime fuses depends on it. 0: the node ahead computes this
            one too.
    """

    ns: Mapping[str, float] = field(hash=False)
    around: Mapping[str, float] = field(default_factory=dict, hash=False)
    behind: Mapping[str, float] = field(default_factory=dict, hash=False)

    def of(self, form: Precision) -> float | None:
        """Nanoseconds in that form; None: it was not measured."""
        for each in (form, SHARED.get(form)):
            if each is not None and each.value in self.ns:
                return self.ns[each.value]
        return None

    def of_float(self, ahead: Precision) -> float:
        """Nanoseconds in float behind a node of that form."""
        known = self.behind.get(ahead.value)
        return (self.of(Precision.FLOAT) or 0.0) if known is None else known


@dataclass(frozen=True, slots=True)
class ChangeTime:
    """Time of a change of a tensor between two nodes: fixed_ns + per_element_ns * elements.

    Attributes:
        fixed_ns: of the node that does it.
        per_element_ns: of each element.
    """

    fixed_ns: float
    per_element_ns: float

    def ns(self, elements: int) -> float:
        """Nanoseconds for a tensor of so many elements."""
        return self.fixed_ns + self.per_element_ns * elements


@dataclass(frozen=True)
class Times(Saved):
    """Times of a model on one machine, one thread.

    Attributes:
        source: where they come from: the machine and the runtime, or a table of costs.
        shapes: input name -> shape of the sample that they were measured on; of other values, too,
            whose sizes only a run tells.
        nodes: node name -> its times.
        changes: value of a costs.Change -> its time.
        others: row -> nanoseconds of the float model that no node of it stands for, "run" (what a
            run takes whatever its nodes are) among them.
        float_ns: whole runs of the float model: the sum of its nodes, conversions and others.
        notes: models that were to be measured and cannot be made, and why.
    """

    FORMAT: ClassVar[str] = "onnxq times 1"
    NOUN: ClassVar[str] = "times"
    ANEW: ClassVar[str] = "Measure them again, with `onnxq tune` and a new journal."

    source: str
    shapes: Mapping[str, tuple[int, ...]] = field(hash=False)
    nodes: Mapping[str, NodeTimes] = field(hash=False)
    changes: Mapping[str, ChangeTime] = field(hash=False)
    others: Mapping[str, float] = field(hash=False)
    float_ns: float
    notes: tuple[str, ...] = ()

    def of(self, nodes: tuple[str, ...], form: Precision) -> float | None:
        """Nanoseconds of nodes in that form; float where one lacks it; None: none was measured."""
        known = [self.nodes[name] for name in nodes if name in self.nodes]
        if not any(each.of(form) is not None for each in known):
            return None
        found = [each.of(form) for each in known]
        floats = [each.of(Precision.FLOAT) for each in known]
        return sum(
            (ns if ns is not None else plain) or 0.0
            for ns, plain in zip(found, floats, strict=True)
        )

    def of_group(self, group: NodeGroup) -> dict[Precision, float]:
        """Form -> nanoseconds of the group's nodes, for the forms that one was measured in."""
        measured = {
            form for name in group.nodes if name in self.nodes for form in self.nodes[name].ns
        }
        found = {form: self.of(group.nodes, form) for form in Precision if form.value in measured}
        return {form: ns for form, ns in found.items() if ns is not None}
