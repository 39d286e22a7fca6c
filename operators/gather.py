"""Slices picked by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.operator import (
    Array,
    AttributeValue,
    Case,
    DynamicForm,
    DynamicNodePlan,
    DynamicRule,
    DynamicWeight,
    Float,
    NodePlan,
    Operator,
    Role,
    Rule,
    register,
)
from onnxq.operators._attributes import integer
from onnxq.operators._check import codes, plain, shape_errors, shared
from onnxq.operators._dynamic import spread, step
from onnxq.operators._emit import on_codes
from onnxq.operators._examples import ints, normal
from onnxq.operators._nodes import constant, infinite_operand
from onnxq.qparams import PerBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx_ir.tape import Tape

    from onnxq.qparams import QParams

BYTE = 8  # bits; Gather takes no narrower codes
SHORT_ROW = 20  # numbers; with a float32 scale, a shorter row exceeds 0.3 of its float size


@register
class Gather(Operator):
    """Y = X[..., indices, ...] along `axis`; ONNX Gather-13."""

    op_type = "Gather"

    def rule(self, node: ir.Node) -> Rule | Float:
        """Copies codes, so the output has the input's qparams."""
        return infinite_operand(node, (0,)) or Rule(Role.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[Case]:
        """The plain one, the nasty ones, an empty batch."""
        x = normal(5, 4)
        yield Case("rows", (x, np.array([[0, 4], [-1, 2]])), (1,))
        yield Case("columns", (x, ints(1, 1, 3)), (1,), {"axis": 1})
        yield Case("scalar index", (x, np.array(2)), (1,))
        yield Case("constant table", (x, ints(0, 3)), (0,))
        yield Case("empty batch", (x, np.zeros((0, 2), np.int64)))

    def lower(
        self, tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value]:
        """Gather on codes."""
        return on_codes(tape, node, plan, inputs)

    def kernel(
        self,
        inputs: Sequence[Array | None],
        plan: NodePlan,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Array, ...]:
        """Codes of the output. Raises ShapeError where shapes, dtypes or qparams do not fit."""
        x = codes("Gather", inputs, plan, 0)
        shared("Gather", plan)
        indices = plain("Gather", inputs, 1)
        with shape_errors("Gather"):
            return (np.take(x, indices.astype(np.intp), integer(attributes, "axis", 0)),)

    def dynamic_rule(self, node: ir.Node) -> DynamicRule | Float:
        """A constant table has one scale per row; short rows share one.

        float32(codes[i] - zero_point[i]) * scale[i]: only the rows that are read are dequantized,
        and the float table exists neither in the file nor in memory.
        """
        table = constant(node, 0)
        if table is None:
            return Float("it picks from data that are computed at run time: it has no table")
        if table.ndim < 1 or not table.size:
            return Float("its table has no element")
        if refused := infinite_operand(node, (0,)):
            return refused
        axis = node.attributes.get_int("axis", 0) % table.ndim
        short = table.size // table.shape[axis] < SHORT_ROW
        weight = DynamicWeight(0, None if short else axis)
        return DynamicRule((weight,), (DynamicForm.STORED, DynamicForm.HALF))

    def lower_dynamic(
        self,
        tape: Tape,
        node: ir.Node,
        plan: DynamicNodePlan,
        inputs: Sequence[ir.Value | None],
    ) -> Sequence[ir.Value]:
        """Gather on codes, on zero points where there are any, and on scales; Cast, Sub, Mul.

        Raises:
            UnsupportedError: codes of fewer than 8 bits, or a scale per block.
        """
        table = inputs[0]
        assert table is not None
        (qparams,) = plan.qparams
        rows = _picked(tape, node, "rows", table, inputs[1])
        to_float = {"to": int(ir.DataType.FLOAT)}
        reals = step(tape, "Cast", [rows], f"{node.name}_cast", attributes=to_float)
        if qparams is not None:
            _check_codes(node, qparams)
            reals = self._dequantized(tape, node, reals, table, qparams, inputs[1])
        reals.shape = node.outputs[0].shape
        return [reals]

    def _dequantized(
        self,
        tape: Tape,
        node: ir.Node,
        rows: ir.Value,
        table: ir.Value,
        qparams: QParams,
        indices: ir.Value | None,
    ) -> ir.Value:
        """(rows - zero_point) * scale, both of the rows picked."""
        stem = str(table.name).removesuffix("_quantized")
        rank = len(table.shape or ())
        parts = [("Mul", "scale", qparams.scale)]
        if qparams.zero_point.any():
            parts.insert(0, ("Sub", "zero_point", qparams.zero_point.astype(np.float32)))
        for op_type, part, values in parts:
            operand = spread(tape, table, f"{stem}_{part}", values, qparams, rank)
            if values.ndim:
                operand = _picked(tape, node, part, operand, indices)
            rows = step(tape, op_type, [rows, operand], f"{node.name}_{op_type.lower()}")
        return rows


def _picked(
    tape: Tape, node: ir.Node, label: str, data: ir.Value, indices: ir.Value | None
) -> ir.Value:
    """The node's Gather of other data that have the table's rank."""
    attributes = {"axis": node.attributes.get_int("axis", 0)}
    return step(tape, "Gather", [data, indices], f"{node.name}_{label}", data.type, attributes)


def _check_codes(node: ir.Node, qparams: QParams) -> None:
    if qparams.dtype.bits == BYTE and not isinstance(qparams.granularity, PerBlock):
        return
    raise UnsupportedError(
        f"Gather '{node.name}': a table of {qparams.dtype} with {qparams.granularity}; wanted 8 "
        "bits and a scale per row or per table. Give op type Gather an 8-bit entry in the qconfig, "
        "or None, which leaves it in float."
    )
