"""General matrix product."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import requantize
from onnxq.operator.examples import normal
from onnxq.operator.nodes import has_input, is_constant, shape
from onnxq.operator.site import MICROSOFT
from onnxq.operators._channel_scales import only_along
from onnxq.operators._dynamic import STORED, lower_stored
from onnxq.operators._dynamic_linear import (
    DynamicLinear,
    constant_operand,
    left_rule,
    right_rule,
    write_linear,
)
from onnxq.operators._gemm import centred, matmul_int32, max_abs
from onnxq.operators._pairs import matmul_correction
from onnxq.operators._unfolded import UnfoldedLinear
from onnxq.targets.accumulation import EXACT, Accumulator


@op.register
class Gemm(op.Operator):
    """Y = alpha * A' B' + beta * C, A' = A or A^T by transA, B' likewise; ONNX Gemm-13.

    A' is (M, K), B' is (K, N), C broadcasts to (M, N). Integers: com.microsoft QGemm,
    acc = sum (a - a_zp) (b - b_zp) + c; requantize(acc, alpha * a_scale * b_scale[n] / y_scale),
    or float32(acc) * (alpha * a_scale * b_scale[n]) where the result stays in float32.
    """

    op_type = "Gemm"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Weight per column of B'; the int32 bias is at a_scale * b_scale, so beta must be 1."""
        trans_b = node.attributes.get_int("transB", 0)
        constant = is_constant(node, 1)
        rule = op.Rule(
            op.OpCategory.COMPUTE,
            activations=(0,) if constant else (0, 1),
            weight=op.WeightSlot(1, 0 if trans_b else 1) if constant else None,
            needs_output=False,
            saturating_pairs=True,
            pair_axes=(1 if trans_b else 0,) if constant else (),
        )
        if not has_input(node, 2):
            return rule
        return _with_bias(node, rule, 0 if trans_b else 1)

    def unfolded(self, node: ir.Node) -> op.Unfolded:
        """Unfolds A to A', (M, K): it is a matrix already."""
        trans_a, trans_b = (bool(node.attributes.get_int(n, 0)) for n in ("transA", "transB"))
        return UnfoldedLinear(trans_a, trans_b, node.attributes.get_float("alpha", 1.0))

    def fused_rule(self, node: ir.Node) -> op.Rule | op.Float:
        """ONNX Runtime fuses a Gemm with a computed B, and with any bias that broadcasts."""
        if not has_input(node, 2):
            return self.rule(node)
        for factor in ("alpha", "beta"):
            if node.attributes.get_float(factor, 1.0) != 1.0:
                return op.Float.because(f"{factor} is not 1 and there is a bias")
        weight = op.WeightSlot(1, 0 if node.attributes.get_int("transB", 0) else 1)
        return op.Rule(op.OpCategory.COMPUTE, weight=weight, bias=2, needs_output=False)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling columns of Y scales the same columns of B' and of C."""
        if not only_along(scale, -1):
            return ()
        trans_b = node.attributes.get_int("transB", 0)
        return ({1: scale.reshape((-1, 1) if trans_b else (1, -1)), 2: scale.reshape(-1)},)

    def undone(self, node: ir.Node, scale: op.Reals) -> Mapping[int, op.Reals] | None:
        """Dividing columns of A by scales is undone by scaling the rows of a constant B'."""
        trans_a, trans_b = (node.attributes.get_int(name, 0) for name in ("transA", "transB"))
        if trans_a or not is_constant(node, 1) or not only_along(scale, -1):
            return None
        return {1: scale.reshape((1, -1) if trans_b else (-1, 1))}

    def cases(self) -> Iterable[op.Case]:
        a, b, c = normal(3, 5), normal(5, 4, seed=1), normal(4, seed=2)
        yield op.Case("plain", (a, b, c), (1, 2))
        yield op.Case("transB", (a, normal(4, 5, seed=1), c), (1, 2), {"transB": 1})
        yield op.Case("transA", (normal(5, 3), b, c), (1, 2), {"transA": 1})
        yield op.Case("alpha, no bias", (a, b), (1,), {"alpha": 0.3})
        yield op.Case("bias of one row", (a, b, normal(1, 4, seed=2)), (1, 2))
        yield op.Case("computed B", (a, normal(4, 5, seed=1)), (), {"transB": 1})
        yield op.Case("long sums", (normal(2, 1500), normal(1500, 3, seed=1)), (1,))
        yield op.Case("empty batch", (normal(0, 5), b, c), (1, 2))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QGemm, with float32 output where the plan has no qparams for it."""
        site.check_pair()
        a = site.scale_and_zero_point("a", site.qparams_in(0))
        b_qparams = site.plan.inputs[1]
        assert b_qparams is not None, "check_pair looked"
        b = site.scale_and_zero_point("b", b_qparams)
        slots = [
            site.inputs[0],
            *a,
            site.inputs[1],
            *b,
            site.inputs[2] if has_input(site.node, 2) else None,
        ]
        if site.plan.outputs[0] is not None:
            slots += site.scale_and_zero_point("y", site.plan.outputs[0])
        attributes = site.attributes("alpha", "transA", "transB")
        return site.emit(slots, op_type="QGemm", domain=MICROSOFT, attributes=attributes)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return quantized_gemm(call, EXACT)

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """One scale per column of B', which is stored as (K, N); or per row of a constant A'.

        With A' on the left, A' B' = (B'^T A'^T)^T; A is stored as A'^T, (K, M).
        """
        slot = constant_operand(node)
        if isinstance(slot, op.Float):
            return slot
        trans_a, trans_b = (node.attributes.get_int(name, 0) for name in ("transA", "transB"))
        if slot == 1:
            axis, perm = (0, (1, 0)) if trans_b else (1, None)
            return right_rule(node, axis, perm, -2 if trans_a else -1)
        axis, perm = (1, None) if trans_a else (0, (1, 0))
        return left_rule(node, axis, perm, -1 if trans_b else -2)

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """Run-time integers by integers, or float by dequantized integers, then + beta * C."""
        rule = self.dynamic_rule(site.node)
        assert isinstance(rule, op.DynamicRule), "the plan holds nodes that have a rule"
        if site.plan.precision in STORED:
            return lower_stored(site, rule)
        trans_a, trans_b = (site.node.attributes.get_int(name, 0) for name in ("transA", "transB"))
        row = has_input(site.node, 2) and len(shape(site.node, 2) or ()) == 1
        linear = DynamicLinear(0, 1, turn_x=bool(trans_a), op_type="MatMul" if row else "Gemm")
        if rule.weights[0].slot == 0:
            linear = DynamicLinear(1, 0, turn_x=not trans_b, turn_y=True)
        y = write_linear(site, linear)
        y = _times(site, "alpha", y)
        if has_input(site.node, 2):
            bias = site.inputs[2]
            assert bias is not None
            y = site.step("Add", [y, _times(site, "beta", bias)], f"{site.node.name}_add")
        y.type, y.shape = site.node.outputs[0].type, site.node.outputs[0].shape
        return [y]


def _times(site: op.NodeSite, factor: str, x: ir.Value) -> ir.Value:
    """The value times the node's alpha or beta; itself where that is 1 (canonical graphs)."""
    number = site.node.attributes.get_float(factor, 1.0)
    if number == 1.0:
        return x
    name = f"{site.node.name}_{factor}"
    constant = site.tape.initializer(ir.tensor(np.float32(number)), name=name)
    return site.step("Mul", [x, constant], f"{name}_multiply")


def _with_bias(node: ir.Node, rule: op.Rule, column_axis: int) -> op.Rule | op.Float:
    """The rule with its bias in slot 2, or why an int32 bias cannot hold it."""
    if rule.weight is None:
        return op.Float.because(
            "its B is computed at run time; a bias needs constant weights beside it"
        )
    if not is_constant(node, 2):
        return op.Float.because("its bias is computed at run time; a constant bias is needed")
    if node.attributes.get_float("beta", 1.0) != 1.0:
        return op.Float.because(
            "beta is not 1: an int32 bias needs beta = 1; fold beta into the bias"
        )
    if node.attributes.get_float("alpha", 1.0) != 1.0:
        return op.Float.because("alpha is not 1 and there is a bias; fold alpha into the weight")
    b, c = shape(node, 1), shape(node, 2)
    columns = b[column_axis] if b else None
    if not c or c[:-1] not in ((), (1,)) or (columns is not None and c[-1] != columns):
        return op.Float.because(
            f"its bias of shape {c} does not have one number per column ({columns})"
        )
    return replace(rule, bias=2)


def quantized_gemm(call: op.Call, accumulator: Accumulator) -> tuple[op.Array, ...]:
    """Integers of Y, or float32, as `Gemm.kernel`, on a machine."""
    a, b = call.integers(0), call.integers(1)
    if a.ndim != 2 or b.ndim != 2:
        raise call.shape_error(f"A {a.shape} and B {b.shape}; wanted two matrices.")
    trans_a, trans_b = call.integer("transA", 0), call.integer("transB", 0)
    a_qparams = call.qparams_in(0)
    b_qparams = call.weight_qparams(1, b, 0 if trans_b else 1)
    right = centred(b, b_qparams)
    total = matmul_int32(
        a.T if trans_a else a, a_qparams, right.T if trans_b else right, max_abs(b_qparams)
    )
    if not accumulator.exact:
        change = matmul_correction(a.T if trans_a else a, b.T if trans_b else b, accumulator)
        total = total if change is None else np.asarray(total + change)
    if len(call.inputs) > 2 and call.inputs[2] is not None:
        bias = call.integers(2).astype(np.int32)
        try:
            total += np.broadcast_to(bias, total.shape)
        except ValueError as error:
            raise call.shape_error(f"bias {bias.shape}, result {total.shape}.") from error
    alpha = np.float32(call.real("alpha", 1.0))
    multiplier = np.asarray(alpha * a_qparams.scale * b_qparams.scale)
    if call.plan.outputs[0] is None:
        return (np.asarray(total.astype(np.float32) * multiplier),)
    y_qparams = call.qparams_out()
    return (requantize(total, np.asarray(multiplier / y_qparams.scale), y_qparams),)
