"""Self-attention with its projections, as ONNX Runtime's transformer tools fuse it.

Over 300 lines, because what a node lacks decides which of its precisions there are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import ints32, normal
from onnxq.operator.nodes import has_input, is_constant, shape
from onnxq.operator.site import MICROSOFT, REAL
from onnxq.operators import _dynamic
from onnxq.operators._heads import Heads, attend, heads_of, merge_heads

X, WEIGHT, BIAS, MASK, PAST, SCORE_BIAS, PAST_LENGTH = range(7)  # input slots
KEPT = ("num_heads", "unidirectional", "scale", "mask_filter_value")  # QAttention's attributes
NOT_ROWS = (-1, -3)  # summed over; each element of a batch is a product of its own


@op.register
class MicrosoftAttention(op.Operator):
    """Y = softmax(scale Q K^T + mask) V per head, [Q K V] = X W + bias; com.microsoft Attention-1.

    X (B, S, C), W (C, 3 H), bias (3 H,), mask_index (see `added_mask`), past (2, B, heads, P,
    H / heads), attention_bias (added to the scores), past_sequence_length. Outputs Y (B, S, H) and
    present. Dynamic: DynamicQuantizeLinear of X and com.microsoft QAttention, which has scales per
    column; scores, softmax and V stay in float32. An attention_bias, or a V of its own size:
    the integer MatMul by itself, and MultiHeadAttention.
    """

    op_type = "Attention"
    domain = MICROSOFT

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Float: its result would be, and dynamic quantization has the MatMuls already.

        QAttention on integers whose scale is known ahead takes 0.93 to 1.07 of the time of the
        dynamic form (1 to 128 rows, widths 256 and 768; benchmarks/results/fusions.md), at the same
        SQNR: a static form gains nothing.
        """
        return op.Float.because(
            "static quantization has no form of com.microsoft.Attention; dynamic quantization "
            "has: give it a dynamic entry, such as --set op:Attention=dynamic_int8"
        )

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """One scale per column of Q, K and V; integers where QAttention has all that it needs."""
        sizes = shape(node, WEIGHT)
        if not is_constant(node, WEIGHT):
            return op.Float.because("its weight is computed at run time; a constant one is needed")
        if not has_input(node, BIAS):  # the canonical model has one
            return op.Float.because("it has no bias, without which ONNX Runtime runs no form of it")
        if sizes is None or len(sizes) != 2:
            return op.Float.because(f"its weight has shape {sizes}; wanted (size, 3 * hidden)")
        weights = (op.DynamicWeight(WEIGHT, 1),)
        if missing := _why_not_in_integers(node, sizes[1] or 0):
            return op.DynamicRule(weights, _dynamic.STORED, missing=missing)
        precisions = (op.Precision.DYNAMIC_INT8, *_dynamic.STORED)
        return op.DynamicRule(
            weights,
            precisions,
            saturating_pairs=True,
            not_rows=NOT_ROWS,
            measured_as="MultiHeadAttention" if _is_split(node) else "",
        )

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """QAttention, or Attention on weights that are dequantized at load."""
        if site.plan.precision is op.Precision.DYNAMIC_INT8:
            slots = [*site.inputs, *[None] * (PAST_LENGTH + 1 - len(site.inputs))]
            return _quantized(site, slots)
        rule = self.dynamic_rule(site.node)
        assert isinstance(rule, op.DynamicRule), "the plan holds nodes that have a rule"
        return _dynamic.lower_stored(site, rule)

    def float_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """Arrays that ONNX Runtime computes in float32, within rounding: Y and present."""
        heads = _heads(call)
        same = heads.k.shape == heads.v.shape
        return (merge_heads(attend(heads)), *([np.stack([heads.k, heads.v])] if same else []))

    def cases(self) -> Iterable[op.Case]:
        """Masks, past, one-sided; what MultiHeadAttention is needed for."""
        yield from _cases()


def _why_not_in_integers(node: ir.Node, columns: int) -> str:
    """Reason why ONNX Runtime's integer kernels do not serve this node; empty: they do."""
    attributes = node.attributes
    if has_input(node, PAST_LENGTH) or attributes.get_int("past_present_share_buffer", 0) != 0:
        return "its past and present share a buffer, which ONNX Runtime's QAttention does not do"
    if attributes.get_int("do_rotary", 0):
        return "it turns positions (do_rotary), which ONNX Runtime's QAttention does not do"
    heads = attributes.get_int("num_heads", 1)
    if not _is_split(node):
        fits = columns and not columns % (3 * heads)
        return "" if fits else f"its {columns} columns are no multiple of 3 times {heads} heads"
    sizes = _sizes(node, columns)
    if len(sizes) != 3 or sum(sizes) != columns or sizes[0] != sizes[1]:
        return f"its {columns} columns are not the sum of qkv_hidden_sizes {sizes}"
    what = "with an attention_bias or a V of its own size, integers need MultiHeadAttention, which"
    if has_input(node, PAST) or any(v.name or v.uses() for v in node.outputs[1:]):
        return f"{what} has past and present in other shapes"
    if has_input(node, MASK) and not _masks_keys(node):
        return f"{what} has no masks but (batch, keys) and (batch, rows, keys)"
    return ""


def _is_split(node: ir.Node) -> bool:
    """Whether QAttention lacks something that MultiHeadAttention has."""
    sizes = node.attributes.get_ints("qkv_hidden_sizes", ())
    return has_input(node, SCORE_BIAS) or len(set(sizes)) > 1


def _sizes(node: ir.Node, columns: int) -> list[int]:
    """Columns of Q, K and V."""
    return list(node.attributes.get_ints("qkv_hidden_sizes", ()) or [columns // 3] * 3)


def _masks_keys(node: ir.Node) -> bool:
    """Whether mask_index is (batch, rows, keys), or (batch, keys) and not for broadcasting."""
    mask, x = node.inputs[MASK], node.inputs[X]
    if mask is None or mask.shape is None or x is None or x.shape is None:
        return False
    if len(mask.shape) != 2 or len(x.shape) != 3:
        return len(mask.shape) == 3
    keys, rows = mask.shape[1], x.shape[1]
    named = isinstance(keys, int) or keys.value is not None
    return named and keys == rows


def _quantized(site: op.DynamicSite, slots: Sequence[ir.Value | None]) -> list[ir.Value]:
    """DynamicQuantizeLinear and QAttention."""
    x, weight, bias = slots[X], slots[WEIGHT], slots[BIAS]
    (qparams,) = site.plan.qparams
    assert x is not None
    assert weight is not None
    assert bias is not None, "dynamic_rule looked"
    assert qparams is not None, "the precision is dynamic_int8"
    _dynamic.check_integer(site.node, weight, qparams)
    integers, x_scale, x_point = _dynamic.quantized_at_run_time(site, "x", x)
    if _is_split(site.node):
        matmul = _dynamic.integer_matmul(site, "qkv", (integers, x_scale, x_point), weight, qparams)
        projected = site.step("Add", [matmul, bias], f"{site.node.name}_qkv")
        return _split(site, projected, slots)
    scale, *point = _dynamic.parameters_of(site, weight, qparams)
    w_point = point[0] if point else None
    inputs = [integers, weight, bias, x_scale, scale, slots[MASK], x_point, w_point, slots[PAST]]
    named = [value.name != "" for value in site.node.outputs]
    outputs = site.tape.op_multi_out(
        "QAttention",
        inputs,
        site.attributes(*KEPT),
        num_outputs=max(i + 1 for i, given in enumerate(named) if given),
        domain=MICROSOFT,
        name=site.node.name,
    )
    for value, old in zip(outputs, site.node.outputs, strict=False):
        value.type, value.shape = REAL, old.shape
    return [outputs[i] if given else ir.Value(name="") for i, given in enumerate(named)]


def _split(
    site: op.NodeSite, projected: ir.Value, slots: Sequence[ir.Value | None]
) -> list[ir.Value]:
    """MultiHeadAttention of (batch, rows, columns of Q, K and V)."""
    weight = site.node.inputs[WEIGHT]
    assert weight is not None
    assert weight.const_value is not None, "dynamic_rule looked"
    sizes = np.array(_sizes(site.node, weight.const_value.shape.numpy()[1]), np.int64)
    parts = site.tape.op_multi_out(
        "Split",
        [projected, site.constant("sizes", sizes)],
        {"axis": 2},
        num_outputs=3,
        name=f"{site.node.name}_split",
    )
    for part in parts:
        part.type = REAL
    y = site.tape.op(
        "MultiHeadAttention",
        [*parts, None, slots[MASK], slots[SCORE_BIAS]],
        site.attributes(*KEPT),
        domain=MICROSOFT,
        name=site.node.name,
    )
    y.type, y.shape = REAL, site.node.outputs[0].shape
    return [y, *(ir.Value(name="") for _ in site.node.outputs[1:])]


def _heads(call: op.NodeCall) -> Heads:
    """Q, K and V of every head, the past in front, and what is added to the scores."""
    for name in ("do_rotary", "past_present_share_buffer"):
        if call.integer(name, 0):
            raise UnsupportedError(f"{call.op_type}: {name} is set, which onnxq has no kernel for.")
    count = call.integer("num_heads", 0)
    x, w = call.plain(X), call.plain(WEIGHT)
    if x.ndim != 3 or w.ndim != 2 or x.shape[2:] != w.shape[:1] or not w.size:
        raise call.shape_error(
            f"input of shape {x.shape} by weights of shape {w.shape}; wanted "
            "(batch, length, size) and (size, columns)."
        )
    sizes = call.ints("qkv_hidden_sizes", [w.shape[1] // 3] * 3)
    if count < 1 or len(sizes) != 3 or sum(sizes) != w.shape[1] or any(n % count for n in sizes):
        raise call.shape_error(
            f"{w.shape[1]} columns for Q, K and V of sizes {sizes} in {count} "
            "heads; wanted as many columns as their sum, and sizes that num_heads divides."
        )
    bias = call.optional(BIAS)
    if bias is not None and bias.shape != w.shape[1:]:
        raise call.shape_error(f"bias has shape {bias.shape}; wanted {w.shape[1:]}.")
    product = x.astype(np.float64) @ w.astype(np.float64)
    product += 0 if bias is None else bias.astype(np.float64)
    projected = np.asarray(product, np.float32)
    parts = np.split(projected, np.cumsum(sizes[:2]), axis=2)
    heads = heads_of(call, parts, call.optional(MASK), call.optional(PAST))
    score_bias = call.optional(SCORE_BIAS)
    if score_bias is None:
        return heads
    added = score_bias.astype(np.float32)
    return replace(heads, added=added if heads.added is None else heads.added + added)


def _cases() -> Iterable[op.Case]:
    x, w, bias = normal(2, 4, 8), normal(8, 18, seed=1), normal(18, seed=2)
    past = normal(2, 2, 2, 3, 3, seed=3)
    heads: dict[str, op.AttributeValue] = {"num_heads": 2}

    def case(
        name: str, *more: op.Array | None, outputs: int = 1, **attributes: op.AttributeValue
    ) -> op.Case:
        return op.Case(name, (x, w, bias, *more), (1, 2), heads | attributes, outputs)

    keys = np.array([[1, 1, 0, 1], [0, 1, 1, 0]], np.int32)
    yield case("plain")
    yield op.Case("a bias computed at run time", (x, w, bias), (1,), heads)
    yield case("ends", ints32(2, 4))
    yield case("ends and starts", ints32(3, 4, 1, 0))
    yield case("mask of keys", keys)
    yield case("mask of rows and keys", np.stack([keys, keys[::-1]] * 2, axis=1))
    yield case("one-sided", unidirectional=1)
    yield case("past", None, past, outputs=2, unidirectional=1)
    yield case("scale, filter, mask", keys, scale=0.2, mask_filter_value=-2.5)
    yield case("equal sizes by name", qkv_hidden_sizes=[6, 6, 6])
    yield case("present alone", outputs=2)
    yield case("sizes of their own", qkv_hidden_sizes=[4, 4, 10])
    yield case("sizes of their own, one-sided", qkv_hidden_sizes=[8, 8, 2], unidirectional=1)
    yield case("bias of scores", None, None, normal(1, 2, 4, 4, seed=4))
    yield case("bias of scores, mask", keys, None, normal(2, 1, 4, 4, seed=4), scale=0.3)
    every = np.stack([keys, keys[::-1]] * 2, axis=1)
    yield case("bias of scores, mask of rows", every, None, normal(1, 1, 4, 4, seed=4))
