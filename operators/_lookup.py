"""Writes the lookup of 8-bit codes in a table to the model, as GatherElements.

x -> Reshape (rows, -1) -> Cast to int32 -> GatherElements of a table (rows, 256) -> Reshape -> y
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.operators._check import qparams_in, qparams_out
from onnxq.operators._emit import initializer
from onnxq.operators._tables import table_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from onnx_ir.tape import Tape

    from onnxq.operator import NodePlan
    from onnxq.qparams import IntArray

ROWS = (16, 8, 4, 2)
"""GatherElements shares rows out to threads: as many equal ones of these as the tensor splits into.
Measured with two threads, Reshape and Cast included: 16, 8 or 2 rows .38 ns, one row .64."""


def lower_table(
    tape: Tape,
    node: ir.Node,
    plan: NodePlan,
    inputs: Sequence[ir.Value | None],
    table: IntArray,
) -> list[ir.Value]:
    """The first operand's codes looked up.

    Args:
        tape: takes the nodes.
        node: the float node.
        plan: of 8-bit codes.
        inputs: the codes come first.
        table: codes of the result by ascending code, (256,) for all elements; or (..., 256), one
            table for each place of the leading axes, which broadcast to the operand's shape.
    """
    p, q = qparams_in(node.op_type, plan, 0), qparams_out(node.op_type, plan)
    x = inputs[0]
    assert x is not None, "the first operand has qparams"
    sizes = _sizes(node)
    rows = 1 if table.ndim > 1 else _rows(sizes)
    index = tape.op("Cast", [x], {"to": ir.DataType.INT32}, name=f"{node.name}_to_index")
    if table.ndim > 1:
        first = _constant(tape, node, "offsets", table_offsets(table))
        index = tape.op("Add", [index, first], name=f"{node.name}_index")
    flat = _constant(tape, node, "rows", np.array([rows, -1], np.int64))
    index = tape.op("Reshape", [index, flat], name=f"{node.name}_split")
    # the index of a code below 0 counts from the end, so that 0 comes first
    entries = np.tile(np.roll(table.ravel(), p.dtype.qmin), (rows, 1))
    found = tape.op(
        "GatherElements",
        [initializer(tape, node, "table", entries, q.dtype), index],
        {"axis": 1},
        name=node.name,
    )
    if sizes is not None and all(sizes):
        shape = _constant(tape, node, "shape", np.array(sizes, np.int64))
    else:
        shape = tape.op("Shape", [x], name=f"{node.name}_shape")
        # to Reshape, a size of 0 means that of its operand: an empty batch needs it in front
        line = _constant(tape, node, "line", np.array([-1], np.int64))
        found = tape.op("Reshape", [found, line], name=f"{node.name}_line")
    y = tape.op("Reshape", [found, shape], name=f"{node.name}_join")
    y.type, y.shape = ir.TensorType(ir.DataType[q.dtype.onnx]), node.outputs[0].shape
    return [y]


def _sizes(node: ir.Node) -> list[int | None] | None:
    """Sizes of the operand, None for those not known; None where the rank is not known."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return None if shape is None else [s if isinstance(s, int) else None for s in shape]


def _rows(sizes: Sequence[int | None] | None) -> int:
    """A number of equal rows that the elements are sure to split into, whatever the batch."""
    known = math.prod(size for size in sizes or () if size is not None)
    return next((rows for rows in ROWS if known % rows == 0), 1)


def _constant(tape: Tape, node: ir.Node, suffix: str, array: npt.NDArray[np.integer]) -> ir.Value:
    return tape.initializer(ir.tensor(array), name=f"{node.name}_{suffix}")
