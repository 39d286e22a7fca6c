"""Functions without an integer kernel: around the float operator, or a table of all codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.errors import ShapeError
from onnxq.operators._check import codes, qparams_in, qparams_out, shape_errors
from onnxq.operators._emit import attributes_of, scale_and_zero_point
from onnxq.operators._lookup import lower_table
from onnxq.operators._tables import TABLE_BITS, is_tabulable, look_up, rounded, tabulate
from onnxq.qparams import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from onnx_ir.tape import Tape

    from onnxq.operator import Array, NodePlan
    from onnxq.qparams import IntArray

    Reals = npt.NDArray[np.float64]

SIGNED_UNIT = (-1.0, 128 / 127)
"""For results in [-1, 1]: 8 bits get the scale 1/127, so that -1, 0 and 1 are codes."""


def lower_around(
    tape: Tape, node: ir.Node, plan: NodePlan, inputs: Sequence[ir.Value | None]
) -> list[ir.Value]:
    """DequantizeLinear -> the operator -> QuantizeLinear; per-tensor qparams only."""
    reals = [
        value
        if value is None or plan.inputs[i] is None
        else tape.op(
            "DequantizeLinear",
            [value, *scale_and_zero_point(tape, node, f"in{i}", qparams_in(node.op_type, plan, i))],
            name=f"{node.name}_in{i}_dequantize",
        )
        for i, value in enumerate(inputs)
    ]
    results = tape.op_multi_out(
        node.op_type,
        reals,
        attributes_of(node),
        num_outputs=len(node.outputs),
        domain=node.domain,
        name=node.name,
    )
    outputs = []
    for i, (value, old) in enumerate(zip(results, node.outputs, strict=True)):
        value.type, value.shape = old.type, old.shape
        if i >= len(plan.outputs) or plan.outputs[i] is None:
            outputs.append(value)
            continue
        qparams = qparams_out(node.op_type, plan, i)
        parameters = scale_and_zero_point(tape, node, f"out{i}", qparams)
        name = f"{node.name}_out{i}_quantize"
        codes_out = tape.op("QuantizeLinear", [value, *parameters], name=name)
        codes_out.type, codes_out.shape = ir.TensorType(ir.DataType[qparams.dtype.onnx]), old.shape
        outputs.append(codes_out)
    return outputs


def lower_function(
    tape: Tape,
    node: ir.Node,
    plan: NodePlan,
    inputs: Sequence[ir.Value | None],
    function: Callable[[Reals], Reals],
) -> list[ir.Value]:
    """The first operand's codes looked up in a table of the function; wide codes: around float."""
    if not is_tabulable(plan):
        return lower_around(tape, node, plan, inputs)
    p, q = qparams_in(node.op_type, plan, 0), qparams_out(node.op_type, plan)
    return lower_table(tape, node, plan, inputs, tabulate(function, p, q))


def table_kernel(
    op: str,
    inputs: Sequence[Array | None],
    plan: NodePlan,
    function: Callable[[Reals], Reals],
) -> IntArray:
    """Codes of a function of the first operand, computed in float64 and rounded to float32 once.

    The function is taken of all 256 codes, or of those that occur where codes are wider.

    Raises:
        ShapeError: codes or qparams are missing or do not fit together.
    """
    x = codes(op, inputs, plan, 0)
    p, q = qparams_in(op, plan, 0), qparams_out(op, plan)
    if p.dtype.bits <= TABLE_BITS:
        return look_up(tabulate(function, p, q), x, p.dtype)
    found, places = np.unique(x, return_inverse=True)
    table = quantize(rounded(function, dequantize(found, p)), q)
    return np.asarray(table[places].reshape(x.shape))


def around_kernel(
    op: str,
    inputs: Sequence[Array | None],
    plan: NodePlan,
    function: Callable[..., Reals],
) -> IntArray:
    """Codes of a function of operands that broadcast, as `table_kernel`; operands may be reals.

    Raises:
        ShapeError: as `table_kernel`, or shapes do not broadcast.
    """
    reals = []
    for i, x in enumerate(inputs):
        if i < len(plan.inputs) and plan.inputs[i] is not None:
            reals.append(dequantize(codes(op, inputs, plan, i), qparams_in(op, plan, i)))
        elif x is not None and x.dtype == np.float32:
            reals.append(np.asarray(x, np.float32))
        else:
            got = "nothing" if x is None else str(x.dtype)
            raise ShapeError(f"{op}: input {i} is {got}; without qparams, float32 is wanted.")
    with shape_errors(op):
        values = rounded(function, *reals)
    return quantize(values, qparams_out(op, plan))
