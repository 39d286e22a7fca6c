"""Writes nodes whose names and values are those of the node that they stand for, in bodies too.

A value in the body of a Scan must not have the name of one around it; so every value is named
`<node>_<label>` here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq.dtypes import QDType
from onnxq.errors import UnsupportedError
from onnxq.operator import NodeSite
from onnxq.operators._dynamic import quantized_at_run_time
from onnxq.qparams import PerChannel, PerTensor, QParams

Attribute = int | float | list[int] | ir.Graph
BYTE_BITS = 8


@dataclass(frozen=True, slots=True, eq=False)
class ColumnQParams:
    """Scales and zero points of a matrix's columns: rank 0 each, or (columns,)."""

    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.integer]
    dtype: QDType

    @classmethod
    def of(cls, qparams: QParams | None) -> ColumnQParams:
        """The qparams of a weight whose last stored axis is that of the columns."""
        assert qparams is not None, "integers have qparams"
        suits = qparams.dtype.bits == BYTE_BITS
        if not suits or not isinstance(qparams.granularity, PerTensor | PerChannel):
            raise UnsupportedError(
                f"MatMul of integers exists for 8-bit weights per tensor or per channel; got "
                f"{qparams.dtype}, {qparams.granularity}. Choose such a weight observer, or "
                "precision: weight_only."
            )
        return cls(qparams.scale, qparams.zero_point, qparams.dtype)

    def repeated(self, count: int) -> ColumnQParams:
        """The qparams of as many such matrices beside each other."""
        if not self.scale.ndim:
            return self
        scale, zero_point = np.tile(self.scale, count), np.tile(self.zero_point, count)
        return ColumnQParams(scale, zero_point, self.dtype)

    def between(self, start: int, end: int) -> ColumnQParams:
        """The qparams of the columns from start to end."""
        if not self.scale.ndim:
            return self
        return ColumnQParams(self.scale[start:end], self.zero_point[start:end], self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Integers (K, N), scale and zero point of rank 0 or (N,)."""

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """An activation's integers, scale and zero point, known when the model runs."""

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value


class BodyWriter:
    """Writes to a tape.

    Args:
        tape: takes the nodes.
        node: the float node; gives the names.
        prefix: of the names; default: the node's name.
        outer: writes around this body, and takes its constants; None: this is the main graph.
    """

    def __init__(
        self, tape: Tape, node: ir.Node, prefix: str | None = None, outer: BodyWriter | None = None
    ) -> None:
        self._tape = tape
        self.node = node
        self._prefix = prefix or node.name or node.op_type
        self._outer = outer
        self._made: dict[str, ir.Value] = {}

    def inner(self, label: str) -> BodyWriter:
        """For a body; its constants stay in the graph around it."""
        return BodyWriter(Tape(), self.node, f"{self._prefix}_{label}", self)

    def graph(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Graph:
        """The body that was written."""
        return ir.Graph(inputs, outputs, nodes=self._tape.nodes, name=f"{self._prefix}_body")

    def argument(self, label: str, dtype: ir.DataType, columns: int) -> ir.Value:
        """An input (N, columns) of the body."""
        return ir.val(f"{self._prefix}_{label}", dtype, [None, columns])

    def ops(
        self,
        label: str,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute] | None,
        count: int,
    ) -> list[ir.Value]:
        """Outputs of one node."""
        name = f"{self._prefix}_{label}_{op_type.lower()}"
        values = self._tape.op_multi_out(op_type, inputs, attributes, num_outputs=count, name=name)
        for i, value in enumerate(values):
            value.name = f"{self._prefix}_{label}" + (f"_{i}" if count > 1 else "")
        return list(values)

    def op(
        self,
        label: str,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> ir.Value:
        """The output of one node."""
        return self.ops(label, op_type, inputs, attributes, 1)[0]

    def once(self, label: str, op_type: str, inputs: Sequence[ir.Value]) -> ir.Value:
        """Body of one node, made once for all who ask."""
        if label not in self._made:
            self._made[label] = self.op(label, op_type, inputs)
        return self._made[label]

    def constant(self, label: str, tensor: ir.TensorProtocol) -> ir.Value:
        """An initializer, one per label, in the main graph."""
        if self._outer is not None:
            return self._outer.constant(label, tensor)
        if label not in self._made:
            name = f"{self._prefix}_{label}"
            self._made[label] = self._tape.initializer(tensor, name=name)
        return self._made[label]

    def ints(self, label: str, values: Sequence[int]) -> ir.Value:
        """A vector of int64."""
        return self.constant(label, ir.tensor(np.array(values, np.int64)))

    def integer(self, label: str, value: int) -> ir.Value:
        """An int64 of rank 0."""
        return self.constant(label, ir.tensor(np.array(value, np.int64)))

    def reals_of(self, label: str, values: npt.NDArray[np.float32]) -> ir.Value:
        """float32, any shape."""
        return self.constant(label, ir.tensor(np.asarray(values, np.float32)))

    def columns(self, label: str, integers: ColumnQParams) -> tuple[ir.Value, ir.Value]:
        """Scale and zero point as initializers; zero points that are all 0 are one."""
        points = integers.zero_point
        if points.ndim and not points.any():
            points = points[0]
        tensor = ir.tensor(np.asarray(points), dtype=ir.DataType[integers.dtype.onnx])
        scale = self.reals_of(f"{label}_weight_scale", integers.scale)
        return scale, self.constant(f"{label}_weight_zero_point", tensor)

    def split(self, label: str, value: ir.Value, sizes: Sequence[int]) -> list[ir.Value]:
        """Pieces along the last axis."""
        if len(sizes) == 1:
            return [value]
        lengths = self.ints(f"sizes_{'_'.join(str(size) for size in sizes)}", sizes)
        return self.ops(label, "Split", [value, lengths], {"axis": -1}, len(sizes))

    def quantized(self, label: str, x: ir.Value) -> Quantized:
        """DynamicQuantizeLinear."""
        values = quantized_at_run_time(NodeSite(self._tape, self.node, ()), label, x)
        producer = values[0].producer()
        assert producer is not None, "it was just written"
        producer.name = f"{self._prefix}_{label}_quantize"
        for value, suffix in zip(values, ("integers", "scale", "zero_point"), strict=True):
            value.name = f"{self._prefix}_{label}_{suffix}"
        return Quantized(*values)

    def matmul(self, label: str, x: Quantized, w: Matrix, bias: ir.Value | None) -> ir.Value:
        """float32(sum (x - x_zp) (w - w_zp)) * (x_scale * w_scale) + bias.

        In the precision that ONNX Runtime fuses to DynamicQuantizeMatMul or MatMulIntegerToFloat.
        """
        total = self.op(
            f"{label}_sum", "MatMulInteger", [x.integers, w.integers, x.zero_point, w.zero_point]
        )
        real = self.op(f"{label}_real", "Cast", [total], {"to": ir.DataType.FLOAT.value})
        scale = self.op(f"{label}_multiplier", "Mul", [x.scale, w.scale])
        result = self.op(f"{label}_product", "Mul", [real, scale])
        return result if bias is None else self.op(f"{label}_biased", "Add", [result, bias])
