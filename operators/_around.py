"""Float operators between DequantizeLinear and QuantizeLinear, for want of an integer kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.operators._check import codes, qparams_in, qparams_out
from onnxq.operators._emit import attributes_of, scale_and_zero_point
from onnxq.operators._tables import all_codes, look_up
from onnxq.qparams import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from onnx_ir.tape import Tape

    from onnxq.operator import Array, NodePlan

    Reals = npt.NDArray[np.float64]


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


def table_kernel(
    op: str,
    inputs: Sequence[Array | None],
    plan: NodePlan,
    function: Callable[[Reals], Reals],
) -> Array:
    """Codes of a function of one operand: all 256 results, computed in float64 and rounded once.

    Raises:
        ShapeError: codes or qparams are missing or do not fit together.
        UnsupportedError: codes of more than 8 bits.
    """
    x = codes(op, inputs, plan, 0)
    p, q = qparams_in(op, plan, 0), qparams_out(op, plan)
    reals = dequantize(all_codes(p.dtype).astype(p.dtype.storage), p)
    with np.errstate(all="ignore"):  # NaN and Inf have codes too
        values = np.asarray(function(reals.astype(np.float64)), np.float32)
    return look_up(quantize(values, q), x, p.dtype)
