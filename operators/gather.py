"""Slices picked by index."""

from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import ints, normal
from onnxq.operator.nodes import constant, infinite_operand
from onnxq.operator.site import MICROSOFT
from onnxq.operators._dynamic import expanded
from onnxq.qparams import PerBlock, QParams

BYTE_BITS, NIBBLE_BITS = 8, 4  # bits; Gather takes no integers narrower than a byte
MATRIX = 2  # rank
MIN_BLOCK = 16
SHORT_ROW = 20  # numbers; with a float32 scale, a shorter row exceeds 0.3 of its float size


@op.register
class Gather(op.Operator):
    """Y = X[..., indices, ...] along `axis`; ONNX Gather-13."""

    op_type = "Gather"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Copies integers, so the output has the input's qparams."""
        return infinite_operand(node, (0,)) or op.Rule(op.OpCategory.MOVEMENT, shares_qparams=True)

    def cases(self) -> Iterable[op.Case]:
        x = normal(5, 4)
        yield op.Case("rows", (x, np.array([[0, 4], [-1, 2]])), (1,))
        yield op.Case("columns", (x, ints(1, 1, 3)), (1,), {"axis": 1})
        yield op.Case("scalar index", (x, np.array(2)), (1,))
        yield op.Case("constant table", (x, ints(0, 3)), (0,))
        yield op.Case("empty batch", (x, np.zeros((0, 2), np.int64)))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.on_integers()

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        call.shared()
        indices = call.plain(1)
        with call.shape_errors():
            return (np.take(x, indices.astype(np.intp), call.integer("axis", 0)),)

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """A constant lookup table has one scale per row; short rows share one.

        float32(integers[i] - zero_point[i]) * scale[i]: only the rows that are read are
        dequantized, and the float embedding exists neither in the file nor in memory.
        """
        table = constant(node, 0)
        if table is None:
            return op.Float.because(
                "it picks from data that are computed at run time: it has no lookup table"
            )
        if table.ndim < 1 or not table.size:
            return op.Float.because("its lookup table has no element")
        if refused := infinite_operand(node, (0,)):
            return refused
        axis = node.attributes.get_int("axis", 0) % table.ndim
        short = table.size // table.shape[axis] < SHORT_ROW
        weight = op.DynamicWeight(0, None if short else axis)
        rows = axis == 0 and table.ndim == MATRIX
        blocks = (op.Precision.WEIGHT_ONLY_GROUPWISE,) if rows and not short else ()
        precisions = (op.Precision.WEIGHT_ONLY, *blocks, op.Precision.WEIGHT_ONLY_FLOAT16)
        return op.DynamicRule((weight,), precisions, min_bits=NIBBLE_BITS)

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """Gather on integers, on zero points where there are any, and on scales; Cast, Sub, Mul.

        Of 8-bit integers with a scale per row, com.microsoft GatherBlockQuantized took 1.5 to 2
        times as long from 16 rows on (30,522 x 768, AVX512-VNNI). It is the only one for blocks.
        """
        table = site.inputs[0]
        assert table is not None
        (qparams,) = site.plan.qparams
        if qparams is not None and isinstance(qparams.granularity, PerBlock):
            return [_in_blocks(site, table, qparams, site.inputs[1])]
        rows = _picked(site, "rows", table, site.inputs[1])
        to_float = {"to": int(ir.DataType.FLOAT)}
        reals = site.step("Cast", [rows], f"{site.node.name}_cast", attributes=to_float)
        if qparams is not None:
            reals = self._dequantized(site, reals, table, qparams, site.inputs[1])
        reals.shape = site.node.outputs[0].shape
        return [reals]

    def _dequantized(
        self,
        site: op.NodeSite,
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
            operand = expanded(site, table, f"{stem}_{part}", values, qparams, rank)
            if values.ndim:
                operand = _picked(site, part, operand, indices)
            rows = site.step(op_type, [rows, operand], f"{site.node.name}_{op_type.lower()}")
        return rows


def _picked(site: op.NodeSite, label: str, data: ir.Value, indices: ir.Value | None) -> ir.Value:
    """The node's Gather of other data that have the table's rank."""
    attributes = {"axis": site.node.attributes.get_int("axis", 0)}
    return site.step("Gather", [data, indices], f"{site.node.name}_{label}", data.type, attributes)


def _in_blocks(
    site: op.NodeSite, table: ir.Value, qparams: QParams, indices: ir.Value | None
) -> ir.Value:
    """GatherBlockQuantized on a matrix of rows."""
    assert table.const_value is not None, "integers are constants"
    assert isinstance(qparams.granularity, PerBlock), "asked before"
    integers = np.asarray(table.const_value.numpy())
    bits, axis = qparams.dtype.bits, site.node.attributes.get_int("axis", 0)
    size = qparams.granularity.size
    odd = size < MIN_BLOCK or size & (size - 1)
    if bits < NIBBLE_BITS or integers.ndim != MATRIX or axis % MATRIX or odd:
        raise UnsupportedError(
            f"Gather '{site.node.name}': a table {integers.shape} of {qparams.dtype} with "
            f"{qparams.granularity}, along axis {axis}; ONNX Runtime picks rows of matrices of "
            "4 or 8 bits, in groups of 16, 32, 64 ... Give op type Gather an 8-bit entry in the "
            "qconfig, or None for float."
        )
    shape = (len(integers), -(-integers.shape[1] // size))
    stem = str(table.name).removesuffix("_quantized")
    scale = np.broadcast_to(_column(qparams.scale), shape)
    points = np.broadcast_to(_column(qparams.zero_point), shape)
    kind = ir.DataType[qparams.dtype.onnx]
    if kind == ir.DataType.INT8:  # it has no kernel of int8
        kind, offset = ir.DataType.UINT8, 1 << (BYTE_BITS - 1)
        points = points.astype(np.int16) + offset
        unsigned = (integers.astype(np.int16) + offset).astype(np.uint8)
        table = site.tape.initializer(ir.tensor(unsigned), name=f"{stem}_unsigned")
    arrays = {
        "block_scale": ir.tensor(np.ascontiguousarray(scale)),
        "block_zero_point": ir.tensor(points.astype(kind.numpy()), dtype=kind),
    }
    slots = [
        site.tape.initializer(tensor, name=f"{stem}_{name}") for name, tensor in arrays.items()
    ]
    attributes = {"bits": bits, "block_size": size, "gather_axis": 0, "quantize_axis": 1}
    y = site.tape.op(
        "GatherBlockQuantized",
        [table, indices, *slots],
        attributes,
        domain=MICROSOFT,
        name=f"{site.node.name}_rows",
    )
    y.type, y.shape = ir.TensorType(ir.DataType.FLOAT), site.node.outputs[0].shape
    return y


def _column(values: op.Array) -> op.Array:
    """One number per row as a column; blocks and single numbers as they are."""
    return values[:, None] if values.ndim == 1 else values
