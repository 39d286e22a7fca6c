"""Plain ONNX operators on integer tensors: MaxPool, Clip or Reshape of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    IntegerOperator,
    NodePlan,
    Operator,
    Role,
    Rule,
)
from onnxq.operators._integer import QDTYPES
from onnxq.qparams import QParams, per_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@runtime_checkable
class ComputesOnCodes(Protocol):
    """A float operator that ONNX Runtime runs on codes with an arithmetic of its own (Resize)."""

    def plain_kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """What ONNX Runtime computes from the codes, all outputs; refusals as IntegerOperator's."""


class PlainOnCodes(IntegerOperator):
    """The kernel of a float operator that moves or bounds codes, with scale 1 and zero point 0.

    With these, a number and its code are the same, so that Clip's bounds and Pad's value are codes
    as ONNX Runtime's integer kernels take them.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    @classmethod
    def of(cls, operator: Operator) -> Self | None:
        """None where the operator has no kernel."""
        return cls(operator) if operator.has_kernel() else None

    def kernel(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """Codes of the results.

        Raises:
            UnsupportedError: the operator computes in float, or its codes have a type without
                kernel.
        """
        rule = self._rule(inputs, attributes)
        if rule is None:
            raise UnsupportedError(
                f"{self.operator.op_type}: ONNX Runtime does not run it on codes as it is."
            )
        known: list[QParams | None] = [None] * len(inputs)
        for slot in rule.activations:
            x = inputs[slot]
            if x is None or x.dtype not in QDTYPES:
                got = "nothing" if x is None else str(x.dtype)
                raise UnsupportedError(
                    f"{self.operator.op_type}: input {slot} is {got}; kernels on codes exist for "
                    f"{', '.join(str(t) for t in QDTYPES)}."
                )
            known[slot] = per_tensor(1.0, 0, QDTYPES[x.dtype])
        if isinstance(self.operator, ComputesOnCodes):
            return self.operator.plain_kernel(inputs, attributes)
        shared = known[rule.activations[0]]
        outputs = tuple(
            shared if i in rule.outputs else None for i in range(max(rule.outputs, default=0) + 1)
        )
        return self.operator.kernel(inputs, NodePlan(tuple(known), outputs), attributes)

    def serves(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> bool:
        """Whether the operator moves or bounds its activations, and these are codes."""
        if not any(x is not None and x.dtype in QDTYPES for x in inputs):
            return False
        rule = self._rule(inputs, attributes)
        activations = [] if rule is None else [inputs[slot] for slot in rule.activations]
        return bool(activations) and all(x is not None and x.dtype in QDTYPES for x in activations)

    def _rule(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> Rule | None:
        """What the operator says of this node; None where it neither moves nor bounds."""
        node = _node(self.operator, inputs, attributes)
        rule = self.operator.rule(node)
        for value in node.inputs:
            if value is not None:  # node and values refer to one another: a cycle would keep arrays
                value.const_value = None
        moves = isinstance(rule, Rule) and rule.role in (Role.MOVEMENT, Role.CLAMP)
        return rule if isinstance(rule, Rule) and moves else None

    def cases(self) -> Iterable[Case]:
        """None of its own: the float operator's are run on codes."""
        return ()


def _node(
    operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
) -> ir.Node:
    """The node with every input but the activations' data known, for the rule to look at."""
    values = [None if x is None else _value(f"in{i}", x) for i, x in enumerate(inputs)]
    attrs = {k: v for k, v in attributes.items() if v is not None}
    return ir.node(operator.op_type, values, attrs, domain=operator.domain)  # type: ignore[arg-type]


def _value(name: str, x: Array) -> ir.Value:
    x = np.asarray(x)
    return ir.val(name, ir.tensor(x).dtype, x.shape, const_value=ir.tensor(x))
