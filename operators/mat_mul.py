"""Matrix product with NumPy's broadcasting."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import requantize
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, is_constant, shape
from onnxq.operator.site import MICROSOFT
from onnxq.operators._channel_scales import fitted, only_along
from onnxq.operators._dynamic import STORED, lower_stored
from onnxq.operators._dynamic_linear import (
    DynamicLinear,
    constant_operand,
    left_rule,
    right_rule,
    write_linear,
)
from onnxq.operators._gemm import centred, matmul_int32, max_abs
from onnxq.operators._unfolded import UnfoldedLinear

BIAS = 2  # slot, where there is an Add of it behind the node and the result stays in float32


@op.register
class MatMul(op.Operator):
    """Y = A B, (..., M, K) by (..., K, N), as np.matmul for rank 1 and batches; ONNX MatMul-13.

    Integers: QLinearMatMul-10,
    requantize(sum (a - a_zp) (b - b_zp), a_scale * b_scale[n] / y_scale); where the result stays in
    float32, com.microsoft MatMulIntegerToFloat, float32(sum) * (a_scale * b_scale[n]) + bias[n]:
    the bias of an Add behind the node is a third input of the site.
    """

    op_type = "MatMul"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """A constant matrix is a weight per column; other ranks are quantized per tensor.

        ONNX Runtime fuses a B of rank 3 with scales per column, and then fails when it runs.
        """
        b = shape(node, 1)
        matrix = is_constant(node, 1) and b is not None and len(b) == 2
        return op.Rule(
            op.OpCategory.COMPUTE,
            activations=(0,) if matrix else (0, 1),
            weight=op.WeightSlot(1, 1) if matrix else None,
            needs_output=False,
            saturating_pairs=True,
            pair_axes=(0,) if matrix else (),
        )

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """A constant A, such as a filter bank, or a constant B that is no matrix."""
        a, b = constant(node, 0), constant(node, 1)
        if a is not None:
            return (op.Weighted(1, np.atleast_2d(a)),)
        if b is not None and b.ndim != 2:
            return (op.Weighted(0, b[None] if b.ndim == 1 else np.swapaxes(b, -1, -2)),)
        return ()

    def unfolded(self, node: ir.Node) -> op.Unfolded:
        """Unfolds A to (rows, K): it is a matrix already."""
        return UnfoldedLinear()

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling columns of the result scales the same columns of B."""
        b = shape(node, 1)
        if scale.ndim < 2 or scale.shape[-2] > 1 or b is None or len(b) < 2:
            return ()
        columns = fitted(scale, len(b))
        return () if columns is None else ({1: columns},)

    def undone(self, node: ir.Node, scale: op.Reals) -> Mapping[int, op.Reals] | None:
        """Dividing columns of A by scales is undone by scaling the rows of a constant B."""
        b = shape(node, 1)
        if not is_constant(node, 1) or b is None or len(b) != 2 or not only_along(scale, -1):
            return None
        return {1: scale.reshape(-1, 1)}

    def cases(self) -> Iterable[op.Case]:
        b = normal(5, 4, seed=1)
        yield op.Case("weight", (normal(3, 5), b), (1,))
        yield op.Case("weight, batches", (normal(2, 3, 5), b), (1,))
        yield op.Case("weight of rank 1", (normal(3, 5), normal(5, seed=1)), (1,))
        yield op.Case("weight of rank 3", (normal(2, 3, 5), normal(2, 5, 4, seed=1)), (1,))
        yield op.Case("constant on the left", (normal(3, 5), b), (0,))
        yield op.Case("two activations", (normal(2, 3, 5), normal(2, 5, 4, seed=1)))
        yield op.Case("broadcast batches", (normal(2, 1, 3, 5), normal(4, 5, 2, seed=1)))
        yield op.Case("row by matrix", (normal(5), b), (1,))
        yield op.Case("row by column", (normal(5), normal(5, seed=1)))
        yield op.Case("long sums", (normal(2, 1500), normal(1500, 3, seed=1)), (1,))
        yield op.Case("empty batch", (normal(0, 3, 5), b), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearMatMul, or MatMulIntegerToFloat where the plan has no qparams for the output."""
        site.check_pair()
        a = site.scale_and_zero_point("a", site.qparams_in(0))
        b_qparams = site.plan.inputs[1]
        assert b_qparams is not None, "check_pair looked"
        b = site.scale_and_zero_point("b", b_qparams)
        if site.plan.outputs[0] is None:
            slots = [site.inputs[0], site.inputs[1], a[0], b[0], a[1], b[1]]
            slots += site.inputs[BIAS:]
            return site.emit(slots, op_type="MatMulIntegerToFloat", domain=MICROSOFT, attributes={})
        y = site.scale_and_zero_point("y", site.plan.outputs[0])
        slots = [site.inputs[0], *a, site.inputs[1], *b, *y]
        return site.emit(slots, op_type="QLinearMatMul", attributes={})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        a, b = call.integers(0), call.integers(1)
        if not a.ndim or not b.ndim:
            raise call.shape_error(
                f"matrix product of shapes {a.shape} and {b.shape}: rank 0 has no columns."
            )
        a_qparams = call.qparams_in(0)
        b_qparams = call.weight_qparams(1, b, b.ndim - 1)
        total = matmul_int32(a, a_qparams, centred(b, b_qparams), max_abs(b_qparams))
        multiplier = np.asarray(a_qparams.scale * b_qparams.scale)
        if call.plan.outputs[0] is None:
            y = np.asarray(total.astype(np.float32) * multiplier)
            bias = call.optional(BIAS)
            return (y if bias is None else np.asarray(y + bias.astype(np.float32)),)
        y_qparams = call.qparams_out()
        return (requantize(total, np.asarray(multiplier / y_qparams.scale), y_qparams),)

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """A constant matrix on either side has a scale per column or row; other ranks have one.

        With W (M, K) on the left, W X = (X^T W^T)^T: activations by weights, which is the MatMul
        that has fast kernels; integers are stored as W^T.
        """
        slot = constant_operand(node)
        if isinstance(slot, op.Float):
            return slot
        return right_rule(node, 1, None) if slot == 1 else left_rule(node, 0, (1, 0))

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """Run-time integers by integers, or float by dequantized integers.

        A bias is the Add behind it.
        """
        rule = self.dynamic_rule(site.node)
        assert isinstance(rule, op.DynamicRule), "the plan holds nodes that have a rule"
        if site.plan.precision in STORED:
            return lower_stored(site, rule)
        linear = DynamicLinear(1, 0, turn_x=True, turn_y=True)
        if rule.weights[0].slot == 1:
            matrices = len(shape(site.node, 0) or ()) == len(shape(site.node, 1) or ()) == 2
            linear = DynamicLinear(0, 1, op_type="Gemm" if matrices else "MatMul")
        y = write_linear(site, linear)
        y.shape = site.node.outputs[0].shape
        return [y]
