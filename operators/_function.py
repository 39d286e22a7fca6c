"""Functions without an integer kernel: around the float operator, or a table of all codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.errors import ShapeError
from onnxq.operators._tables import (
    TABLE_BITS,
    is_tabulable,
    look_up,
    lower_table,
    rounded,
    tabulate,
)
from onnxq.qparams import dequantize, quantize

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from onnxq.operator import Call, Site
    from onnxq.qparams import IntArray

    Reals = npt.NDArray[np.float64]

SIGNED_UNIT = (-1.0, 128 / 127)
"""For results in [-1, 1]: 8 bits get the scale 1/127, so that -1, 0 and 1 are codes."""


def lower_around(site: Site) -> list[ir.Value]:
    """DequantizeLinear -> the operator -> QuantizeLinear; per-tensor qparams only."""
    reals = [
        value
        if value is None or site.plan.inputs[i] is None
        else site.tape.op(
            "DequantizeLinear",
            [value, *site.scale_and_zero_point(f"in{i}", site.qparams_in(i))],
            name=f"{site.node.name}_in{i}_dequantize",
        )
        for i, value in enumerate(site.inputs)
    ]
    results = site.tape.op_multi_out(
        site.node.op_type,
        reals,
        site.attributes(),
        num_outputs=len(site.node.outputs),
        domain=site.node.domain,
        name=site.node.name,
    )
    outputs = []
    for i, (value, old) in enumerate(zip(results, site.node.outputs, strict=True)):
        value.type, value.shape = old.type, old.shape
        if i >= len(site.plan.outputs) or site.plan.outputs[i] is None:
            outputs.append(value)
            continue
        qparams = site.qparams_out(i)
        parameters = site.scale_and_zero_point(f"out{i}", qparams)
        name = f"{site.node.name}_out{i}_quantize"
        codes_out = site.tape.op("QuantizeLinear", [value, *parameters], name=name)
        codes_out.type, codes_out.shape = ir.TensorType(ir.DataType[qparams.dtype.onnx]), old.shape
        outputs.append(codes_out)
    return outputs


def lower_function(site: Site, function: Callable[[Reals], Reals]) -> list[ir.Value]:
    """The first operand's codes looked up in a table of the function; wide codes: around float."""
    if not is_tabulable(site.plan):
        return lower_around(site)
    p, q = site.qparams_in(0), site.qparams_out()
    return lower_table(site, tabulate(function, p, q))


def table_kernel(call: Call, function: Callable[[Reals], Reals]) -> IntArray:
    """Codes of a function of the first operand, computed in float64 and rounded to float32 once.

    The function is taken of all 256 codes, or of those that occur where codes are wider.

    Raises:
        ShapeError: codes or qparams are missing or do not fit together.
    """
    x = call.codes(0)
    p, q = call.qparams_in(0), call.qparams_out()
    if p.dtype.bits <= TABLE_BITS:
        return look_up(tabulate(function, p, q), x, p.dtype)
    found, places = np.unique(x, return_inverse=True)
    table = quantize(rounded(function, dequantize(found, p)), q)
    return np.asarray(table[places].reshape(x.shape))


def around_kernel(call: Call, function: Callable[..., Reals]) -> IntArray:
    """Codes of a function of operands that broadcast, as `table_kernel`; operands may be reals.

    Raises:
        ShapeError: as `table_kernel`, or shapes do not broadcast.
    """
    reals = []
    for i, x in enumerate(call.inputs):
        if i < len(call.plan.inputs) and call.plan.inputs[i] is not None:
            reals.append(dequantize(call.codes(i), call.qparams_in(i)))
        elif x is not None and x.dtype == np.float32:
            reals.append(np.asarray(x, np.float32))
        else:
            got = "nothing" if x is None else str(x.dtype)
            raise ShapeError(
                f"{call.op_type}: input {i} is {got}; without qparams, float32 is wanted."
            )
    with call.shape_errors():
        values = rounded(function, *reals)
    return quantize(values, call.qparams_out())
