"""Exponentials that sum to 1."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import normal
from onnxq.operator.nodes import shape
from onnxq.operators._tables import all_integers

# QLinearSoftmax counts in steps of 1 / floor(1 / y_scale), and float32(1) / float32(1 / 255) < 255.
# This range gives 8 bits the scale 1 / 256, for which that is exact; 1 becomes the last integer.
OUTPUT_RANGE = (0.0, 255 / 256)
OPSET = 13  # from which on `axis` means one axis
TABLE_SIZE = 256
HEADROOM = 5  # what ONNX Runtime keeps below the largest exponent of float32


@op.register
class Softmax(op.Operator):
    """Y = exp(X - max) / sum exp(X - max) along `axis`; ONNX Softmax-13.

    Integers: com.microsoft QLinearSoftmax. Its table holds float32(exp((i - 255) x_scale + shift))
    for i = x + 255 - max(x), the shift keeping the largest sum just inside float32;
    y = saturate(rint(e * floor(1 / y_scale) / sum) + y_zp).
    """

    op_type = "Softmax"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise in cost, with results in [0, 1] whatever the data."""
        sizes = shape(node, 0)
        axis = node.attributes.get_int("axis", -1)
        size = sizes[axis] if sizes and -len(sizes) <= axis < len(sizes) else None
        if size is None:
            return op.Float.because(
                f"the size along its axis {axis} is not known: over a single element, ONNX "
                "Runtime's integer kernel overflows"
            )
        if size == 1:
            return op.Float.because(
                "it runs over a single element, where ONNX Runtime's integer kernel overflows"
            )
        return op.Rule(op.OpCategory.ELEMENTWISE, output_range=OUTPUT_RANGE)

    def fused_rule(self, node: ir.Node) -> op.Rule | op.Float:
        """ONNX Runtime fuses over one element too, though its kernel refuses that at run time."""
        return op.Rule(op.OpCategory.ELEMENTWISE, output_range=OUTPUT_RANGE)

    def gives_positive(self, node: ir.Node) -> bool:
        """Results are in [0, 1]."""
        return True

    def cases(self) -> Iterable[op.Case]:
        """No empty batch: QLinearSoftmax then returns no output at all."""
        yield op.Case("plain", (normal(2, 3, 40),))
        yield op.Case("axis", (normal(2, 30, 4),), (), {"axis": 1})
        yield op.Case("wide", (20 * normal(3, 17),))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearSoftmax."""
        opset = OPSET if site.node.version is None else min(site.node.version, OPSET)
        axis = site.node.attributes.get_int("axis", -1 if opset == OPSET else 1)
        return site.qlinear("QLinearSoftmax", {"axis": axis, "opset": opset})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        p, q = call.qparams_in(0), call.qparams_out()
        axis = call.integer("axis", -1)
        with call.shape_errors():
            rows = np.moveaxis(x, axis, -1).astype(np.int32)
        all_integers(p.dtype)  # guards the width
        if rows.shape[-1] == 0:
            return (x.copy(),)
        table = _exponentials(p.scale, rows.shape[-1])
        terms = table[rows - rows.max(axis=-1, keepdims=True) + TABLE_SIZE - 1]
        total = np.zeros(rows.shape[:-1], np.float32)
        for i in range(rows.shape[-1]):  # one by one, as ONNX Runtime adds
            total += terms[..., i]
        parts = float(np.floor(np.float32(1) / q.scale))
        most = rows.shape[-1] * math.exp(HEADROOM)
        if parts > most:  # e * parts overflows to infinity there
            raise UnsupportedError(
                f"Softmax over {rows.shape[-1]} elements with output scale 1 / {parts:g}: ONNX "
                f"Runtime overflows; choose a scale of at least 1 / {most:.0f}."
            )
        value = np.rint(terms * parts / total[..., None]) + q.zero_point.astype(np.float32)
        y = np.clip(value, q.dtype.qmin, q.dtype.qmax).astype(q.dtype.storage)
        return (np.ascontiguousarray(np.moveaxis(y, -1, axis)),)


def _exponentials(scale: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.float32]:
    """exp((i - 255) * scale + shift) for i = 0..255; `count` terms of it stay inside float32."""
    largest = np.float32(np.finfo(np.float32).max) / np.float32(count)
    shift = max(0.0, float(np.log(largest)) - HEADROOM) / float(scale)
    exponents = (np.arange(TABLE_SIZE) - (TABLE_SIZE - 1) + shift) * float(scale)
    return np.asarray(np.exp(exponents), np.float32)
