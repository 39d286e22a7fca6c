"""Nodes without weights: pools, functions, sums, movement, branches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

if TYPE_CHECKING:
    from scripts._random_graphs.growth import Attribute, Growth, Value

FUNCTIONS: dict[str, tuple[int, dict[str, Attribute]]] = {
    "Relu": (1, {}),
    "LeakyRelu": (1, {"alpha": 0.1}),
    "Sigmoid": (1, {}),
    "Tanh": (1, {}),
    "HardSwish": (14, {}),
    "HardSigmoid": (1, {}),
    "Elu": (1, {}),
    "Softplus": (1, {}),
    "Erf": (1, {}),
    "Abs": (1, {}),
    "Neg": (1, {}),
    "Gelu": (20, {}),
    "Softmax": (1, {"axis": -1}),
}
"""Functions of one tensor -> (the first opset, attributes)."""


def function(g: Growth, x: Value) -> Value | None:
    """A function of one tensor; Relu most often, and Clip."""
    if g.random.random() < 0.4:
        return g.node("Relu", [x.name], x.shape)
    if g.random.random() < 0.2:
        low, high = sorted(g.random.normal(size=2) * 3)
        return g.node("Clip", [x.name, g.constant(low), g.constant(high)], x.shape)
    known = [name for name, (opset, _) in FUNCTIONS.items() if opset <= g.opset]
    name = str(g.random.choice(known))
    return g.node(name, [x.name], x.shape, **FUNCTIONS[name][1])


def saturation_mode(g: Growth, x: Value) -> Value | None:
    """A sum or product with another tensor of that shape, with a constant, or with 0 or 1."""
    op_type = str(g.random.choice(["Add", "Add", "Mul", "Sub", "Div"]))
    others = [v for v in g.values if v.shape == x.shape and v.name != x.name]
    if others and op_type != "Div" and g.random.random() < 0.6:
        other = others[int(g.random.integers(len(others)))]
        return g.node(op_type, [x.name, other.name], x.shape)
    if g.random.random() < 0.4:
        neutral = g.constant(0.0 if op_type in ("Add", "Sub") else 1.0)
        return g.node(op_type, [x.name, neutral], x.shape)
    sizes = [1 if g.random.random() < 0.5 else n for n in x.shape[1:]]
    number = g.random.uniform(0.3, 2, sizes) * g.random.choice([-1, 1])
    return g.node(op_type, [x.name, g.constant(number)], x.shape)


def pool(g: Growth, x: Value) -> Value | None:
    """MaxPool or AveragePool, rounding up now and then; or the mean over all of space."""
    sizes = x.shape[2:]
    if not sizes:
        return None
    if g.random.random() < 0.2:
        return g.node("GlobalAveragePool", [x.name], (*x.shape[:2], *(1 for _ in sizes)))
    op_type = str(g.random.choice(["MaxPool", "AveragePool"]))
    kernel = [int(g.random.integers(1, min(n, 3) + 1)) for n in sizes]
    strides = [int(g.random.integers(1, 3)) for _ in sizes]
    pads = [int(g.random.integers(0, (k + 1) // 2)) for k in kernel] * 2
    ceil = int(g.random.integers(2))
    shape = []
    for n, k, s, p in zip(sizes, kernel, strides, pads, strict=False):
        span = n + 2 * p - k
        count = (math.ceil if ceil else math.floor)(span / s) + 1
        # a window that starts in the padding at the end does not count
        shape.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    attributes: dict[str, Attribute] = {}
    if op_type == "AveragePool":
        attributes["count_include_pad"] = int(g.random.integers(2))
    return g.node(
        op_type,
        [x.name],
        (*x.shape[:2], *shape),
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        ceil_mode=ceil,
        **attributes,
    )


def resize(g: Growth, x: Value) -> Value | None:
    """Resize by 2, nearest or linear."""
    if x.rank != 4 or max(x.shape[2:]) > 8:
        return None
    mode = str(g.random.choice(["nearest", "linear"]))
    how = "asymmetric" if mode == "nearest" else str(g.random.choice(["half_pixel", "asymmetric"]))
    attributes: dict[str, Attribute] = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    scales = g.constant([1, 1, 2, 2])
    shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    return g.node("Resize", [x.name, "", scales], shape, **attributes)


def pad(g: Growth, x: Value) -> Value | None:
    """Pad with a constant, by reflection, or with the edge."""
    if x.rank < 3 or min(x.shape[2:]) < 2:
        return None
    mode = str(g.random.choice(["constant", "reflect", "edge"]))
    before, after = ([0, 0, *(int(g.random.integers(2)) for _ in x.shape[2:])] for _ in "ab")
    shape = [n + a + b for n, a, b in zip(x.shape, before, after, strict=True)]
    return g.node("Pad", [x.name, g.integers(before + after)], shape, mode=mode)


def split(g: Growth, x: Value) -> Value | None:
    """Two parts along the second axis, one of them changed, joined again."""
    size = x.shape[1]
    if size < 2:
        return None
    cut = int(g.random.integers(1, size))
    shapes = [(x.shape[0], n, *x.shape[2:]) for n in (cut, size - cut)]
    first, second = g.nodes_of("Split", [x.name, g.integers([cut, size - cut])], shapes, axis=1)
    changed = function(g, second) or second
    parts = [first.name, changed.name]
    return g.node("Concat", parts[:: g.random.choice([-1, 1])], x.shape, axis=1)


def movement(g: Growth, x: Value) -> Value | None:
    """Another shape or order of the same numbers, or a part of them."""
    kind = str(g.random.choice(["flatten", "transpose", "reshape", "slice", "unsqueeze", "mean"]))
    rest = x.shape[1:]
    if kind == "flatten":
        return g.node("Flatten", [x.name], (x.shape[0], int(np.prod(rest))))
    if kind == "transpose":
        perm = [0, *(int(i) + 1 for i in g.random.permutation(len(rest)))]
        return g.node("Transpose", [x.name], [x.shape[i] for i in perm], perm=perm)
    if kind == "reshape" and rest[-1] % 2 == 0 and x.rank < 4:
        shape = (*x.shape[:-1], 2, rest[-1] // 2)
        sizes = [*(0 for _ in x.shape[:-1]), 2, rest[-1] // 2]
        return g.node("Reshape", [x.name, g.integers(sizes)], shape)
    if kind == "slice" and rest[-1] > 2:
        inputs = [x.name, *(g.integers([n]) for n in (1, 2**63 - 1, -1))]
        return g.node("Slice", inputs, (*x.shape[:-1], rest[-1] - 1))
    if kind == "unsqueeze" and x.rank == 2:
        return g.node("Unsqueeze", [x.name, g.integers([1])], (x.shape[0], 1, *rest))
    if kind == "mean" and x.rank == 3:
        if g.opset >= 18:
            inputs = [x.name, g.integers([1])]
            return g.node("ReduceMean", inputs, (x.shape[0], *rest[1:]), keepdims=0)
        return g.node("ReduceMean", [x.name], (x.shape[0], *rest[1:]), axes=[1], keepdims=0)
    return None


def branch(g: Growth, x: Value) -> Value | None:
    """If of the sign of a sum: a MatMul in one branch, a function in the other."""
    if x.rank not in (2, 3):
        return None
    total = g.node("ReduceSum", [x.name], (), keepdims=0)
    positive = g.node("Greater", [total.name, g.constant(0.0)], ())
    weight, bias = g.weight((x.shape[-1],) * 2, 1, x.shape[-1]), g.bias(x.shape[-1])
    bodies = []
    for nodes in (
        [("MatMul", [x.name, weight], "p"), ("Add", ["p", bias], "s"), ("Relu", ["s"], "r")],
        [("Tanh", [x.name], "t")],
    ):
        names = {short: g.name(f"body_{short}") for _, _, short in nodes}
        made = [
            helper.make_node(op, [names.get(n, n) for n in inputs], [names[out]], g.name(op))
            for op, inputs, out in nodes
        ]
        result = helper.make_tensor_value_info(names[nodes[-1][2]], g.float_type, None)
        bodies.append(helper.make_graph(made, g.name("body"), [], [result]))
    return g.node("If", [positive.name], x.shape, then_branch=bodies[0], else_branch=bodies[1])
