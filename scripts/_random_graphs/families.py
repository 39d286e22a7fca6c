"""Families of steps that the layers of usual models lack: bodies, indices, strings, new operators.

A family adds nodes behind x and names the result, float, with the batch in front; None: not of this
x. ONNX Runtime tells its shape, and what it does not run is not drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from scripts._random_graphs.growth import Attribute, Growth, Value

UNARY: tuple[tuple[str, dict[str, Attribute]], ...] = (
    ("Sin", {}), ("Cos", {}), ("Atan", {}), ("Asinh", {}), ("Exp", {}), ("Sign", {}), ("Ceil", {}),
    ("Floor", {}), ("Round", {}), ("Reciprocal", {}), ("Selu", {}), ("Celu", {"alpha": 0.7}),
    ("ThresholdedRelu", {"alpha": 0.2}), ("Softsign", {}), ("Mish", {}), ("Identity", {}),
    ("Dropout", {}), ("LogSoftmax", {"axis": 1}), ("Softmax", {"axis": 1}), ("Hardmax", {}),
    ("LpNormalization", {}), ("MeanVarianceNormalization", {}), ("Shrink", {"lambd": 0.3}),
    ("LRN", {"size": 3}), ("GlobalMaxPool", {}), ("GlobalLpPool", {}), ("Trilu", {}),
    ("DepthToSpace", {"blocksize": 2}), ("SpaceToDepth", {"blocksize": 2}), ("Swish", {}),
)  # fmt: skip
REDUCTIONS = ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def unary(g: Growth, x: Value) -> str:
    """A function of one tensor that moves.function lacks."""
    op_type, attributes = UNARY[g.random.integers(len(UNARY))]
    return g.op(op_type, x.name, **attributes)


def variadic(g: Growth, x: Value) -> str:
    """The least, greatest, mean or sum of two or three; PRelu, Pow, Mod; a choice by comparison."""
    op_type = g.pick("Max", "Min", "Mean", "Sum", "PRelu", "Pow", "Where")
    others = [v.name for v in g.values if v.shape == x.shape and v is not x] or [g.like(x)]
    other = g.pick(*others)
    match op_type:
        case "PRelu":
            return g.op(op_type, x.name, g.constant(g.random.uniform(-0.5, 0.5, x.shape[1:])))
        case "Pow":
            return g.op(op_type, x.name, g.constant(g.pick(2.0, 3.0)))
        case "Where":
            is_less = g.op("Less", x.name, other)
            return g.op(op_type, is_less, x.name, g.op("Neg", other))
    return g.op(op_type, x.name, other, *([g.constant(0.3)] if g.chance(0.3) else []))


def reduction(g: Growth, x: Value) -> str | None:
    """A sum, norm, product or extreme along an axis; an ArgMax."""
    if x.rank < 2:
        return None
    axis, keepdims = g.below(x.rank - 1) + 1, g.below(2) or int(x.rank == 2)
    if g.chance(0.2):
        return g.float_of(g.op("ArgMax", x.name, axis=axis, keepdims=keepdims))
    op_type = f"Reduce{g.pick(*REDUCTIONS)}"
    return g.op(op_type, x.name, g.integers([axis]), keepdims=keepdims)


def einsum(g: Growth, x: Value) -> str | None:
    """A MatMul by Einsum, with a weight, or with x itself turned over."""
    if x.rank != 3:
        return None
    if g.chance(0.4):
        return g.op("Einsum", x.name, x.name, equation=g.pick("bij,bkj->bik", "bij,bij->bi"))
    w = g.weight((x.shape[2], 4), 1, x.shape[2])
    return g.op("Einsum", x.name, w, equation=g.pick("bij,jk->bik", "bij,jk->bki", "...j,jk->...k"))


def indices(g: Growth, x: Value) -> str | None:
    """Scatter, gather and TopK along the last axes, by constant or computed indices."""
    size, every = x.shape[-1], tuple(g.below(x.shape[-1]) for _ in range(2))
    if x.rank < 2 or size < 2:
        return None
    part = np.broadcast_to(every, (*x.shape[:-1], 2))
    match g.pick("GatherND", "GatherElements", "ScatterElements", "ScatterND", "TopK", "Gather"):
        case "GatherND":
            rows = [[i, g.below(x.shape[1])] for i in range(x.shape[0])]
            return g.op("GatherND", x.name, g.integers(rows))
        case "GatherElements":
            return g.op("GatherElements", x.name, g.integers(part), axis=-1)
        case "ScatterElements":
            update = g.constant(g.random.standard_normal(part.shape))
            found = g.integers(part if every[0] != every[1] else part[..., :1])
            update = update if every[0] != every[1] else g.op("Slice", update, *g.cut(0, 1, -1))
            return g.op("ScatterElements", x.name, found, update, axis=-1)
        case "ScatterND":
            update = g.constant(g.random.standard_normal((1, *x.shape[1:])))
            return g.op("ScatterND", x.name, g.integers([[g.below(x.shape[0])]]), update)
        case "TopK":
            count = g.integers([g.below(size) + 1])
            best, where = g.ops("TopK", x.name, count, outputs=2, axis=-1)
            return best if g.chance(0.7) else g.float_of(where)
    order = g.op("Abs", g.integers(every))
    return g.op("Gather", x.name, order, axis=-1)


def grid_sample(g: Growth, x: Value) -> str | None:
    """GridSample by a constant grid, which fixes the batch, or by one that is computed."""
    if x.rank != 4 or g.opset < 16:
        return None
    shape = (x.shape[0], 3, 4, 2)
    grid = g.constant(g.random.uniform(-1.2, 1.2, shape))
    if g.chance(0.4):
        mean = g.op("GlobalAveragePool", g.op("Slice", x.name, *g.cut(0, 1, 1)))
        grid = g.op("Add", grid, g.op("Tanh", mean))
    mode = g.pick("bilinear", "nearest") if g.opset < 20 else g.pick("linear", "nearest", "cubic")
    padding = g.pick("zeros", "border", "reflection")
    corners = g.below(2)
    return g.op("GridSample", x.name, grid, mode=mode, padding_mode=padding, align_corners=corners)


def resize(g: Growth, x: Value) -> str | None:
    """Resize in every mode, by scales or by sizes; by Upsample of old."""
    if x.rank not in (3, 4):
        return None
    space = x.rank - 2
    factors = [float(g.pick(0.5, 1.0, 1.5, 2.0, 3.0)) for _ in range(space)]
    mode = g.pick("nearest", "linear", "cubic") if space == 2 else g.pick("nearest", "linear")
    attributes: dict[str, Attribute] = {"mode": mode}
    if g.opset < 11:
        scales = g.constant([1, 1, *(max(1.0, f) for f in factors)], np.float32)
        op_type = "Resize" if g.opset == 10 else "Upsample"
        return g.op(op_type, x.name, scales, mode=g.pick("nearest", "linear"))
    if g.opset >= 18 and g.chance(0.3) and mode != "nearest":
        attributes["antialias"] = 1
    if mode == "nearest":
        attributes["nearest_mode"] = g.pick(*NEAREST)
    attributes["coordinate_transformation_mode"] = g.pick(*COORDINATES)
    roi = g.constant([], np.float32) if g.opset < 13 else ""
    scales = g.constant([1, 1, *factors], np.float32)
    if g.chance(0.4):
        sizes = [
            *x.shape[:2],
            *(max(1, int(n * f)) for n, f in zip(x.shape[2:], factors, strict=True)),
        ]
        empty = g.constant([], np.float32) if g.opset < 13 else ""
        return g.op("Resize", x.name, roi, empty, g.integers(sizes), **attributes)
    return g.op("Resize", x.name, roi, scales, **attributes)


def pad(g: Growth, x: Value) -> str | None:
    """Pad in every mode, with negative pads."""
    if x.rank < 2 or min(x.shape[1:]) < 3:
        return None
    modes = ("constant", "reflect", "edge", "wrap")[: 4 if g.opset >= 19 else 3]
    pads = [[0, *(g.below(4) - 1 for _ in x.shape[1:])] for _ in "ab"]
    inputs = [x.name, g.integers(pads[0] + pads[1])]
    mode = g.pick(*modes)
    if mode == "constant" and g.chance(0.5):
        inputs.append(g.constant(g.pick(0.0, 1.5, -2.0)))
    return g.op("Pad", *inputs, mode=mode)


def pool(g: Growth, x: Value) -> str | None:
    """LpPool, or a pool with dilations or automatic pads, in any number of dimensions."""
    if x.rank < 3 or min(x.shape[2:]) < 3:
        return None
    op_type = g.pick("LpPool", "MaxPool", "AveragePool")
    attributes: dict[str, Attribute] = {"kernel_shape": [2] * (x.rank - 2)}
    attributes["auto_pad"] = g.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    if g.opset >= 19 and attributes["auto_pad"] == "VALID":
        attributes["dilations"] = [g.below(2) + 1] * (x.rank - 2)
    return g.op(op_type, x.name, **attributes)


def nothing(g: Growth, x: Value) -> str | None:
    """Tensors without elements, joined to x or cut out of it; a node that nobody reads."""
    match g.below(4):
        case 0:
            return g.op("Concat", x.name, g.constant(np.zeros((*x.shape[:-1], 0))), axis=x.rank - 1)
        case 1:
            empty = g.op("Slice", x.name, *g.cut(0, 0, x.rank - 1))
            return g.op("Concat", empty, x.name, axis=x.rank - 1)
        case 2:
            sizes = g.integers([0, x.shape[-1]])
            return g.ops("Split", x.name, sizes, outputs=2, axis=x.rank - 1)[1]
    g.op("MatMul", x.name, g.weight((x.shape[-1], 3), 1, x.shape[-1]))
    return g.op("Relu", x.name)


def fixed_batch(g: Growth, x: Value) -> str:
    """A constant that has the size of the batch."""
    match g.pick("Concat", "Split", "Reshape"):
        case "Concat":
            more = g.constant(g.random.standard_normal((*x.shape[:-1], 1)))
            return g.op("Concat", x.name, more, axis=x.rank - 1)
        case "Split":
            parts = g.ops("Split", x.name, g.integers([1] * x.shape[0]), outputs=x.shape[0], axis=0)
            return g.op("Concat", *parts, axis=0)
    return g.op("Reshape", x.name, g.integers([x.shape[0], -1]))


def dynamic_shape(g: Growth, x: Value) -> str | None:
    """A Reshape whose sizes are computed; Expand, Tile, sequences."""
    match g.pick("Reshape", "Expand", "Tile", "Sequence"):
        case "Reshape":
            first = g.op("Gather", g.op("Shape", x.name), g.integers([0]), axis=0)
            return g.op("Reshape", x.name, g.op("Concat", first, g.integers([-1]), axis=0))
        case "Expand":
            wide = g.op("Unsqueeze", x.name, g.integers([1]))
            return g.op("Expand", wide, g.integers([1, 2, *[1] * (x.rank - 1)]))
        case "Tile":
            return g.op("Tile", x.name, g.integers([*[1] * (x.rank - 1), 2]))
    if g.opset < 11:
        return None
    parts = g.op("SplitToSequence", x.name, axis=x.rank - 1)
    return g.op("ConcatFromSequence", parts, axis=x.rank - 1)


def strings(g: Growth, x: Value) -> str | None:
    """A factor that follows from comparing words, which the largest elements look up."""
    if x.rank != 2 or x.shape[1] < 2:
        return None
    words = g.constant([f"word {i % 2}" for i in range(x.shape[1])], np.object_)
    found = g.op("Gather", words, g.op("ArgMax", x.name, axis=1, keepdims=1), axis=0)
    is_odd = g.op("Equal", found, g.constant("word 1", np.object_))
    return g.op("Sub", x.name, g.float_of(is_odd))


def casts(g: Growth, x: Value) -> str:
    """Integers in between: rounded numbers, an And of comparisons, a remainder."""
    whole = g.op("Cast", x.name, to=g.pick(TensorProto.INT32, TensorProto.INT64))
    if g.chance(0.5):
        return g.op("Add", x.name, g.float_of(g.op("Add", whole, whole)))
    is_some = g.op("And", *(g.op(op, x.name, g.constant(0.1)) for op in ("Less", "Greater")))
    return g.op("Mul", x.name, g.float_of(g.op("Not", is_some)))


def loop(g: Growth, x: Value) -> str | None:
    """A Loop that multiplies two or three times by a weight of the graph around it."""
    if x.rank not in (2, 3):
        return None
    weight, bias = g.weight((x.shape[-1],) * 2, 1, x.shape[-1]), g.bias(x.shape[-1])
    go_in, go_out, state, count = (g.name("b") for _ in range(4))
    steps = [("MatMul", [state, weight]), ("Add", ["", bias]), ("Tanh", [""])]
    body = _body(g, [("Identity", [go_in], go_out)], steps)
    body.input.extend(
        [
            helper.make_tensor_value_info(count, TensorProto.INT64, []),
            helper.make_tensor_value_info(go_in, TensorProto.BOOL, []),
            helper.make_tensor_value_info(state, g.float_type, None),
        ]
    )
    body.output.insert(0, helper.make_tensor_value_info(go_out, TensorProto.BOOL, []))
    trips, go = g.constant(g.below(2) + 2, np.int64), g.constant(True, np.bool_)
    return g.op("Loop", trips, go, x.name, body=body)


def scan(g: Growth, x: Value) -> str | None:
    """A Scan along the second axis, a cell that multiplies: state and one result for each step."""
    if x.rank != 3 or g.opset < 9:
        return None
    size = x.shape[2]
    weight = g.weight((size, size), 1, size)
    state, element = g.name("b"), g.name("b")
    steps = [("MatMul", [element, weight]), ("Add", ["", state]), ("Tanh", [""])]
    body = _body(g, [], steps)
    body.input.extend(
        helper.make_tensor_value_info(name, g.float_type, [x.shape[0], size])
        for name in (state, element)
    )
    each = g.name("b")
    body.node.add().CopyFrom(helper.make_node("Identity", [body.output[0].name], [each]))
    body.output.append(helper.make_tensor_value_info(each, g.float_type, [x.shape[0], size]))
    start = g.constant(np.zeros((x.shape[0], size)))
    axes: dict[str, Attribute] = {"scan_input_axes": [1], "scan_output_axes": [1]}
    last, every = g.ops("Scan", start, x.name, outputs=2, body=body, num_scan_inputs=1, **axes)
    return g.pick(last, every)


def branches(g: Growth, x: Value) -> str | None:
    """An If with an If in a branch, which both multiply by weights of the graph around them."""
    if x.rank not in (2, 3):
        return None
    size = x.shape[-1]
    first, second = (g.weight((size, size), 1, size) for _ in range(2))
    positive = g.op("Greater", g.op("ReduceSum", x.name, keepdims=0), g.constant(0.0))
    inner = _if(
        g, positive, _body(g, [], [("MatMul", [x.name, first])]), _body(g, [], [("Abs", [x.name])])
    )
    outer = helper.make_graph(
        [inner],
        g.name("body"),
        [],
        [helper.make_tensor_value_info(inner.output[0], g.float_type, None)],
    )
    other = _body(g, [], [("MatMul", [x.name, second]), ("Relu", [""])])
    return g.op("If", positive, then_branch=outer, else_branch=other)


def newest(g: Growth, x: Value) -> str | None:
    """Operators of opsets 18 to 24: attention, norms, rotary embedding."""
    match g.pick("Attention", "RMS", "Rotary", "Group"):
        case "Group" if x.rank > 2 and g.opset >= 18:
            groups = int(g.pick(*(n for n in (1, 2, x.shape[1]) if x.shape[1] % n == 0)))
            count = groups if g.opset < 21 else x.shape[1]
            scale, bias = g.constant(g.random.uniform(0.5, 2, count)), g.bias(count)
            return g.op("GroupNormalization", x.name, scale, bias, num_groups=groups)
        case "RMS" if g.opset >= 23:
            scale = g.constant(g.random.uniform(0.5, 2, x.shape[-1]))
            return g.op("RMSNormalization", x.name, scale, axis=-1)
        case "Rotary" if g.opset >= 23 and x.rank == 4 and x.shape[3] % 2 == 0:
            angle = np.outer(np.arange(x.shape[2]), 0.5 ** np.arange(x.shape[3] // 2))
            cos, sin = (g.constant(np.tile(f(angle), (x.shape[0], 1, 1))) for f in (np.cos, np.sin))
            return g.op("RotaryEmbedding", x.name, cos, sin, interleaved=g.below(2))
        case "Attention" if g.opset >= 23 and x.rank == 3 and x.shape[2] % 2 == 0:
            heads = {"q_num_heads": 2, "kv_num_heads": g.pick(1, 2)}
            inner = x.shape[2] // 2 * heads["kv_num_heads"]
            k, v = (
                g.op("MatMul", x.name, g.weight((x.shape[2], inner), 1, x.shape[2])) for _ in "kv"
            )
            return g.op("Attention", x.name, k, v, is_causal=g.below(2), **heads)
    return None


def _body(
    g: Growth, before: Sequence[tuple[str, list[str], str]], steps: Sequence[tuple[str, list[str]]]
) -> onnx.GraphProto:
    """A graph of steps one behind the other: an empty name is the result of the one before."""
    nodes = [helper.make_node(op, ins, [out], g.name(op)) for op, ins, out in before]
    last = ""
    for op_type, inputs in steps:
        read, last = [name or last for name in inputs], g.name("b")
        nodes.append(helper.make_node(op_type, read, [last], g.name(op_type)))
    result = helper.make_tensor_value_info(last, g.float_type, None)
    return helper.make_graph(nodes, g.name("body"), [], [result])


def _if(g: Growth, condition: str, yes: onnx.GraphProto, no: onnx.GraphProto) -> onnx.NodeProto:
    out = [g.name("b")]
    return helper.make_node("If", [condition], out, g.name("if"), then_branch=yes, else_branch=no)


FAMILIES = (
    unary, variadic, reduction, einsum, indices, grid_sample, resize, pad, pool, nothing,
    fixed_batch, dynamic_shape, strings, casts, loop, scan, branches, newest,
)  # fmt: skip
"""All alike often."""
