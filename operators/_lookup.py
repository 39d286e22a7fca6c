"""Functions of 8-bit codes as tables that stand in the model, read by GatherElements.

x -> Reshape (rows, -1) -> Cast to int32 -> GatherElements of a table (rows, 256) -> Reshape -> y
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.operators._check import qparams_in, qparams_out
from onnxq.operators._emit import initializer
from onnxq.operators._tables import TABLE_BITS, all_codes
from onnxq.qparams import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from onnx_ir.tape import Tape

    from onnxq.operator import NodePlan
    from onnxq.qparams import IntArray, QParams

    Reals = npt.NDArray[np.float64]

ROWS = (16, 8, 4, 2)
"""GatherElements shares rows out to threads: as many equal ones of these as the tensor splits into.
Measured with two threads, Reshape and Cast included: 16, 8 or 2 rows .38 ns, one row .64."""


def tabulate(function: Callable[[Reals], Reals], p: QParams, q: QParams) -> IntArray:
    """quantize(f(dequantize(x))) for every code x of p, ascending: (256,) or (..., 256) codes of q.

    f is computed in float64 and rounded to float32 once. NaN becomes qmin, infinities saturate, as
    in QuantizeLinear.

    Raises:
        UnsupportedError: codes of more than 8 bits.
    """
    reals = dequantize(all_codes(p.dtype).astype(p.dtype.storage), p)
    return quantize(rounded(function, reals), q)


def rounded(
    function: Callable[..., Reals], *operands: npt.NDArray[np.floating]
) -> npt.NDArray[np.float32]:
    """The function of float32 operands, computed in float64, as float32."""
    with np.errstate(all="ignore"):  # NaN and Inf have codes too
        return np.asarray(function(*(x.astype(np.float64) for x in operands)), np.float32)


def is_tabulable(plan: NodePlan) -> bool:
    """Whether operand and result have 8 bits."""
    known = [p for p in (*plan.inputs, *plan.outputs) if p is not None]
    return all(p.dtype.bits == TABLE_BITS for p in known)


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
        first = _constant(tape, node, "offsets", _offsets(table))
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


def look_up_each(table: IntArray, x: IntArray, p: QParams) -> IntArray:
    """The codes in the table that `lower_table` writes for (..., 256); shape of x."""
    places = _offsets(table) + (x.astype(np.int32) - p.dtype.qmin)
    return np.asarray(table.ravel()[places])


def _offsets(table: IntArray) -> npt.NDArray[np.int32]:
    """Where each place's table begins; shape of the leading axes."""
    places = table.shape[:-1]
    starts = np.arange(math.prod(places), dtype=np.int32) << TABLE_BITS
    return starts.reshape(places)


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
