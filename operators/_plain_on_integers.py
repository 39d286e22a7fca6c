"""Kernels of ai.onnx operators on integer tensors, such as MaxPool, Clip or Reshape of uint8.

A quantized model has such nodes: ONNX Runtime moves a MaxPool between QuantizeLinear and
DequantizeLinear, where it reads and writes integers. The operator's own `kernel` computes them,
called with scale 1 and zero point 0.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.dtypes import QDType
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator.integer_call import QDTYPES, stored
from onnxq.qparams import QParams, per_tensor

WIDE = {
    np.dtype(name): QDType(name, bits, name[0] != "u", np.dtype(name), name.upper(), 1)
    for name, bits in (("uint32", 32), ("int64", 64), ("uint64", 64))
}
"""Wide integer types, which are moved and compared but not quantized to."""

FLOAT32_EXACT = 1 << 24
VALUES = {"Clip": (1, 2), "Pad": (2,)}
"""Op type -> input slots of real numbers: Clip's bounds, Pad's value."""


@runtime_checkable
class ComputesOnIntegers(Protocol):
    """An operator whose integer kernel in ONNX Runtime has arithmetic of its own (Resize)."""

    def plain_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """All outputs, as ONNX Runtime computes them from integers; refusals as the class's."""


@runtime_checkable
class ComputesFloats(Protocol):
    """An operator whose float32 kernel repeats ONNX Runtime's arithmetic bit for bit (Sigmoid)."""

    def float_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """All outputs, as ONNX Runtime computes them in float32; refusals as IntegerOperator's."""


class PlainOnIntegers(op.IntegerOperator):
    """An IntegerOperator that calls an operator's kernel with scale 1 and zero point 0.

    An integer is then its own real value: Clip's bounds and Pad's value are integers, as ONNX
    Runtime's kernels take them. All integer types are allowed; those below 8 bits are arrays of
    ml_dtypes.
    """

    def __init__(self, operator: op.Operator) -> None:
        self.operator = operator
        self.op_type = operator.op_type  # type: ignore[misc]  # one class serves all of them
        self.domains = (operator.domain,)  # type: ignore[misc]  # likewise

    @classmethod
    def of(cls, operator: op.Operator) -> Self | None:
        """The operator on integers; None where it has no kernel."""
        has_kernel = operator.has_kernel() or isinstance(operator, ComputesFloats)
        return cls(operator) if has_kernel else None

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        """The results, as integers."""
        if isinstance(self.operator, ComputesFloats) and _are_float32(call.inputs):
            return self.operator.float_kernel(call)
        rule = self._rule(call)
        if rule is None:
            raise UnsupportedError(
                f"{self.operator.op_type}: ONNX Runtime does not run it on integers as it is."
            )
        known: list[QParams | None] = [None] * len(call.inputs)
        for slot in rule.activations:
            known[slot] = per_tensor(1.0, 0, self._qdtype(call, slot))
        if isinstance(self.operator, ComputesOnIntegers):
            return self.operator.plain_kernel(call)
        shared = known[rule.activations[0]]
        assert shared is not None, "the loop above"
        self._check_exact(call, rule, shared.dtype)
        outputs = tuple(
            shared if i in rule.outputs else None for i in range(max(rule.outputs, default=0) + 1)
        )
        given = [x if x is None or x.dtype not in QDTYPES else stored(x) for x in call.inputs]
        results = self.operator.kernel(
            op.Call(
                call.op_type, given, op.NodePlan(tuple(known), outputs), attributes=call.attributes
            )
        )
        kind = np.asarray(call.inputs[rule.activations[0]]).dtype
        return tuple(np.asarray(y, kind) if i in rule.outputs else y for i, y in enumerate(results))

    def _qdtype(self, call: op.NodeCall, slot: int) -> QDType:
        """The type of an operand. Raises UnsupportedError where it is absent or no integer."""
        x = call.inputs[slot]
        qdtype = None if x is None else {**QDTYPES, **WIDE}.get(x.dtype)
        if qdtype is None:
            got = "nothing" if x is None else str(x.dtype)
            raise UnsupportedError(
                f"{self.operator.op_type}: input {slot} is {got}; kernels on integers exist for "
                f"{', '.join(str(t) for t in (*QDTYPES, *WIDE))}."
            )
        return qdtype

    def _check_exact(self, call: op.NodeCall, rule: op.Rule, qdtype: QDType) -> None:
        """Refuses a bound or pad value that a float on the way loses, or of another type."""
        slots = VALUES.get(self.operator.op_type, ())
        given = [x for x in map(call.optional, slots) if x is not None]
        for x in given:
            if {**QDTYPES, **WIDE}.get(x.dtype) != qdtype:
                raise ShapeError(
                    f"{self.operator.op_type}: a bound or value is {x.dtype}, the integers are "
                    f"{qdtype}; wanted the same type."
                )
        if qdtype.bits <= 16:
            return
        numbers = [int(x.item()) for x in given]
        clamps = rule.category is op.OpCategory.CLAMP
        if (clamps and qdtype.bits > 32) or any(abs(n) > FLOAT32_EXACT for n in numbers):
            raise UnsupportedError(
                f"{self.operator.op_type}: bounds and values of {qdtype} are computed as float32, "
                f"which is exact up to 2^24; got {numbers}. Integers have at most 16 bits."
            )

    def serves(self, call: op.IntegerCall) -> bool:
        """Whether the operator moves or bounds its activations, and these are integers.

        Or float32, where the operator has written out what ONNX Runtime does with it.
        """
        if isinstance(self.operator, ComputesFloats) and _are_float32(call.inputs):
            return True
        if not any(x is not None and x.dtype in QDTYPES for x in call.inputs):
            return False
        rule = self._rule(call)
        activations = [] if rule is None else [call.inputs[slot] for slot in rule.activations]
        return bool(activations) and all(x is not None and x.dtype in QDTYPES for x in activations)

    def _rule(self, call: op.NodeCall) -> op.Rule | None:
        """The rule of this node; None where it neither moves nor bounds."""
        node = _node(self.operator, call)
        rule = self.operator.rule(node)
        for value in node.inputs:
            if value is not None:  # node and values refer to one another: a cycle would keep arrays
                value.const_value = None
        moves = isinstance(rule, op.Rule) and rule.category in (
            op.OpCategory.MOVEMENT,
            op.OpCategory.CLAMP,
        )
        return rule if isinstance(rule, op.Rule) and moves else None

    def cases(self) -> Iterable[op.Case]:
        """No examples of its own: the float operator's are run on integers."""
        return ()


def _are_float32(inputs: Sequence[op.Array | None]) -> bool:
    """Whether the first input is float32."""
    return bool(inputs) and inputs[0] is not None and inputs[0].dtype == np.float32


def _node(operator: op.Operator, call: op.NodeCall) -> ir.Node:
    """The node for the rule to look at; 0 stands for integers, which say nothing of range."""
    data = next((x.dtype for x in call.inputs if x is not None and x.dtype.kind != "b"), None)
    shown = [
        x if x is None or x.dtype != data else np.broadcast_to(np.zeros((), x.dtype), x.shape)
        for x in call.inputs
    ]
    values = [None if x is None else _value(f"in{i}", x) for i, x in enumerate(shown)]
    attrs = {k: v for k, v in call.attributes.items() if v is not None}
    parts = call.integer("num_outputs", 1)  # of Split
    return ir.node(
        operator.op_type,
        values,
        attrs,  # type: ignore[arg-type]  # a dict of narrower values
        domain=operator.domain,
        num_outputs=parts,
    )


def _value(name: str, x: op.Array) -> ir.Value:
    x = np.asarray(x)
    return ir.val(name, ir.tensor(x).dtype, x.shape, const_value=ir.tensor(x))
