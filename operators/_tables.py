"""Functions of 8-bit integers as tables: 256 entries for one operand, 65,536 for two.

In a model, a table is read by GatherElements:

    x -> Reshape (rows, -1) -> Cast to int32 -> GatherElements (rows, 256) -> Reshape -> y
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import QDType
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, Ints, NodeCall, NodePlan, Reals, Site, nodes
from onnxq.qparams import IntArray, QParams

TABLE_BITS = 8
DIRECT = 1 << 14  # results that QLinearAdd computes in the time that its table takes


def all_integers(dtype: QDType) -> Ints:
    """Every integer of the type, ascending, as int32."""
    if dtype.bits > TABLE_BITS:
        raise UnsupportedError(
            f"{dtype}: ONNX Runtime's element-wise kernels, and the tables that reproduce them, "
            "are for 8 bits; choose uint8 or int8."
        )
    return np.arange(dtype.qmin, dtype.qmax + 1, dtype=np.int32)


def look_up(table: IntArray, x: IntArray, dtype: QDType) -> IntArray:
    """table[x - qmin]; shape of x."""
    if dtype.bits < TABLE_BITS:
        return np.asarray(table[x.astype(np.intp) - dtype.qmin])
    return np.asarray(np.roll(table, dtype.qmin)[_patterns(x)])


def table_of(
    function: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]], p: QParams, q: QParams
) -> IntArray:
    """quantize(f(dequantize(x))) for every integer x of p, ascending: (256,) or (..., 256) of q."""
    return quantize(function(dequantize(all_integers(p.dtype).astype(p.dtype.storage), p)), q)


def tabulate(function: Callable[[Reals], Reals], p: QParams, q: QParams) -> IntArray:
    """`table_of` of f in float64, rounded to float32 once; NaN and Inf as in QuantizeLinear."""
    return table_of(lambda x: rounded(function, x), p, q)


def rounded(
    function: Callable[..., Reals], *operands: npt.NDArray[np.floating]
) -> npt.NDArray[np.float32]:
    """The function of float32 operands, computed in float64, as float32."""
    with np.errstate(all="ignore"):  # NaN and Inf have integers too
        return np.asarray(function(*(x.astype(np.float64) for x in operands)), np.float32)


def is_tabulable(plan: NodePlan) -> bool:
    """Whether operand and result have 8 bits."""
    known = [p for p in (*plan.inputs, *plan.outputs) if p is not None]
    return all(p.dtype.bits == TABLE_BITS for p in known)


def requantize_integers(x: IntArray, p: QParams, q: QParams) -> IntArray:
    """Integers by q of what integers by p stand for; the same array where p and q are equal."""
    if p == q:
        return x
    return look_up(table_of(lambda reals: reals, p, q), x, p.dtype)


def requantized(call: Call, slot: int, out: QParams) -> IntArray:
    """Integers of an input by other qparams of the same type."""
    x, p = call.integers(slot), call.qparams_in(slot)
    if p.dtype != out.dtype:
        raise call.shape_error(f"input {slot} is {p.dtype}, the result {out.dtype}; wanted one.")
    return requantize_integers(x, p, out)


def look_up_each(table: IntArray, x: IntArray, p: QParams) -> IntArray:
    """The integers in the table of each place, (..., 256); shape of x."""
    places = table_offsets(table) + (x.astype(np.int32) - p.dtype.qmin)
    return np.asarray(table.ravel()[places])


def table_offsets(table: IntArray) -> npt.NDArray[np.int32]:
    """Where each place's table begins; shape of the leading axes."""
    places = table.shape[:-1]
    starts = np.arange(math.prod(places), dtype=np.int32) << TABLE_BITS
    return starts.reshape(places)


def _patterns(x: IntArray) -> npt.NDArray[np.uint8]:
    """The bits of 8-bit integers: an index of one byte is read a third faster than one of eight."""
    return np.ascontiguousarray(x).view(np.uint8).reshape(x.shape)


def look_up_pairs(
    call: NodeCall,
    function: Callable[[Ints, Ints], IntArray],
    a: tuple[IntArray, QDType],
    b: tuple[IntArray, QDType],
) -> IntArray:
    """function(a, b) for arrays of integers that broadcast; large ones by a table of pairs."""
    try:
        shape = np.broadcast_shapes(a[0].shape, b[0].shape)
    except ValueError as error:
        raise call.shape_error(f"{error}") from error
    rows, columns = all_integers(a[1]), all_integers(b[1])
    if math.prod(shape) <= DIRECT:
        return np.asarray(function(a[0].astype(np.int32), b[0].astype(np.int32)))
    table = function(rows[:, None], columns[None, :])
    if min(a[1].bits, b[1].bits) < TABLE_BITS:
        row, column = a[0].astype(np.intp) - a[1].qmin, b[0].astype(np.intp) - b[1].qmin
        return np.asarray(table[row, column])
    table = np.roll(table, (a[1].qmin, b[1].qmin), (0, 1)).ravel()
    row = _patterns(a[0]).astype(np.uint16) << TABLE_BITS
    return np.asarray(table[np.bitwise_or(row, _patterns(b[0]))])


ROWS = (16, 8, 4, 2)
"""GatherElements shares rows out to threads: as many equal ones of these as the tensor splits into.
Measured with two threads, Reshape and Cast included: 16, 8 or 2 rows .38 ns, one row .64."""


def lower_table(site: Site, table: IntArray) -> list[ir.Value]:
    """The first operand's integers looked up.

    Args:
        site: of 8-bit integers, which are its first input.
        table: integers of the result by ascending q, (256,) for all elements; or (..., 256), one
            table for each place of the leading axes, which broadcast to the operand's shape.
    """
    p, q = site.qparams_in(0), site.qparams_out()
    x = site.inputs[0]
    assert x is not None, "the first operand has qparams"
    sizes = nodes.shape(site.node, 0)
    rows = 1 if table.ndim > 1 else _rows(sizes)
    index = site.tape.op("Cast", [x], {"to": ir.DataType.INT32}, name=f"{site.node.name}_to_index")
    if table.ndim > 1:
        first = site.constant("offsets", table_offsets(table))
        index = site.tape.op("Add", [index, first], name=f"{site.node.name}_index")
    flat = site.constant("rows", np.array([rows, -1], np.int64))
    index = site.tape.op("Reshape", [index, flat], name=f"{site.node.name}_split")
    # the index of an integer below 0 counts from the end, so that 0 comes first
    entries = np.tile(np.roll(table.ravel(), p.dtype.qmin), (rows, 1))
    found = site.tape.op(
        "GatherElements",
        [site.initializer("table", entries, q.dtype), index],
        {"axis": 1},
        name=site.node.name,
    )
    if sizes is not None and all(sizes):
        shape = site.constant("shape", np.array(sizes, np.int64))
    else:
        shape = site.tape.op("Shape", [x], name=f"{site.node.name}_shape")
        # to Reshape, a size of 0 means that of its operand: an empty batch needs it in front
        line = site.constant("line", np.array([-1], np.int64))
        found = site.tape.op("Reshape", [found, line], name=f"{site.node.name}_line")
    y = site.tape.op("Reshape", [found, shape], name=f"{site.node.name}_join")
    y.type, y.shape = ir.TensorType(ir.DataType[q.dtype.onnx]), site.node.outputs[0].shape
    return [y]


def _rows(sizes: Sequence[int | None] | None) -> int:
    """A number of equal rows that the elements are sure to split into, whatever the batch."""
    known = math.prod(size for size in sizes or () if size is not None)
    return next((rows for rows in ROWS if known % rows == 0), 1)
