"""Writes the lookup of 8-bit codes in a table to the model, as GatherElements.

x -> Reshape (rows, -1) -> Cast to int32 -> GatherElements of a table (rows, 256) -> Reshape -> y
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.operators._tables import table_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from onnxq.operator import NodeSite, Site
    from onnxq.qparams import IntArray

ROWS = (16, 8, 4, 2)
"""GatherElements shares rows out to threads: as many equal ones of these as the tensor splits into.
Measured with two threads, Reshape and Cast included: 16, 8 or 2 rows .38 ns, one row .64."""


def lower_table(site: Site, table: IntArray) -> list[ir.Value]:
    """The first operand's codes looked up.

    Args:
        site: of 8-bit codes, which are its first input.
        table: codes of the result by ascending code, (256,) for all elements; or (..., 256), one
            table for each place of the leading axes, which broadcast to the operand's shape.
    """
    p, q = site.qparams_in(0), site.qparams_out()
    x = site.inputs[0]
    assert x is not None, "the first operand has qparams"
    sizes = _sizes(site.node)
    rows = 1 if table.ndim > 1 else _rows(sizes)
    index = site.tape.op("Cast", [x], {"to": ir.DataType.INT32}, name=f"{site.node.name}_to_index")
    if table.ndim > 1:
        first = _constant(site, "offsets", table_offsets(table))
        index = site.tape.op("Add", [index, first], name=f"{site.node.name}_index")
    flat = _constant(site, "rows", np.array([rows, -1], np.int64))
    index = site.tape.op("Reshape", [index, flat], name=f"{site.node.name}_split")
    # the index of a code below 0 counts from the end, so that 0 comes first
    entries = np.tile(np.roll(table.ravel(), p.dtype.qmin), (rows, 1))
    found = site.tape.op(
        "GatherElements",
        [site.initializer("table", entries, q.dtype), index],
        {"axis": 1},
        name=site.node.name,
    )
    if sizes is not None and all(sizes):
        shape = _constant(site, "shape", np.array(sizes, np.int64))
    else:
        shape = site.tape.op("Shape", [x], name=f"{site.node.name}_shape")
        # to Reshape, a size of 0 means that of its operand: an empty batch needs it in front
        line = _constant(site, "line", np.array([-1], np.int64))
        found = site.tape.op("Reshape", [found, line], name=f"{site.node.name}_line")
    y = site.tape.op("Reshape", [found, shape], name=f"{site.node.name}_join")
    y.type, y.shape = ir.TensorType(ir.DataType[q.dtype.onnx]), site.node.outputs[0].shape
    return [y]


def _sizes(node: ir.Node) -> list[int | None] | None:
    """Sizes of the operand, None for those not known; None where the rank is not known."""
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return None if shape is None else [s if isinstance(s, int) else None for s in shape]


def _rows(sizes: Sequence[int | None] | None) -> int:
    """A number of equal rows that the elements are sure to split into, whatever the batch."""
    known = math.prod(size for size in sizes or () if size is not None)
    return next((rows for rows in ROWS if known % rows == 0), 1)


def _constant(site: NodeSite, suffix: str, array: npt.NDArray[np.integer]) -> ir.Value:
    return site.tape.initializer(ir.tensor(array), name=f"{site.node.name}_{suffix}")
