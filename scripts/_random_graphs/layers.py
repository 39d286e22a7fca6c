"""Layers with weights: convolutions, MatMuls, attention, recurrent cells, norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scripts._random_graphs.growth import Growth, Value

WIDTHS = (3, 4, 6, 8, 9, 12)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def conv(g: Growth, x: Value) -> Value | None:
    """Conv of any rank with groups, strides, dilations, pads, with and without bias."""
    channels, *sizes = x.shape[1:]
    if not sizes:
        return None
    group = int(g.random.choice([n for n in (1, 2, 3, channels) if channels % n == 0]))
    outputs = group * int(g.random.integers(1, max(2, 13 // group)))
    kernel = [int(g.random.integers(1, min(size, 4) + 1)) for size in sizes]
    strides = [int(g.random.choice([1, 1, 2, 3])) for _ in sizes]
    dilations = [int(g.random.integers(1, 3)) if k > 1 else 1 for k in kernel]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    pads = [int(g.random.integers(0, r)) for r in reach * 2]
    room = [n + a + b for n, a, b in zip(sizes, pads, pads[len(sizes) :], strict=False)]
    if any(n < r for n, r in zip(room, reach, strict=True)):
        return None
    shape = [(n - r) // s + 1 for n, r, s in zip(room, reach, strides, strict=True)]
    inner = channels // group * int(np.prod(kernel))
    inputs = [x.name, g.weight((outputs, channels // group, *kernel), 0, inner)]
    inputs += [g.bias(outputs)] if g.random.random() < 0.7 else []
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    return g.node("Conv", inputs, (x.shape[0], outputs, *shape), group=group, **attributes)


def conv_transpose(g: Growth, x: Value) -> Value | None:
    """ConvTranspose in one or two dimensions."""
    channels, *sizes = x.shape[1:]
    if len(sizes) not in (1, 2) or max(sizes, default=0) > 12:
        return None
    group = int(g.random.choice([n for n in (1, 2, channels) if channels % n == 0]))
    each = int(g.random.integers(1, 5))
    kernel = [int(g.random.integers(1, 4)) for _ in sizes]
    strides = [int(g.random.integers(1, 3)) for _ in sizes]
    shape = [(n - 1) * s + k for n, s, k in zip(sizes, strides, kernel, strict=True)]
    weight = g.weight((channels, each, *kernel), 1, channels // group * int(np.prod(kernel)))
    inputs = [x.name, weight] + ([g.bias(each * group)] if g.random.random() < 0.6 else [])
    result = (x.shape[0], each * group, *shape)
    return g.node("ConvTranspose", inputs, result, group=group, strides=strides)


def gemm(g: Growth, x: Value) -> Value | None:
    """Gemm with both orders of B, alpha, beta, and biases of every shape."""
    if x.rank != 2:
        return None
    columns, turned = int(g.random.choice(WIDTHS)), int(g.random.integers(2))
    shape = (columns, x.shape[1]) if turned else (x.shape[1], columns)
    inputs = [x.name, g.weight(shape, 1 - turned, x.shape[1])]
    if g.random.random() < 0.7:
        row = [(columns,), (columns,), (1, columns), (1,), ()][g.random.integers(5)]
        inputs.append(g.constant(g.random.standard_normal(row)))
    factors = {name: float(g.random.choice([0.5, 2.0])) for name in ("alpha", "beta") if _seldom(g)}
    return g.node("Gemm", inputs, (x.shape[0], columns), transB=turned, **factors)


def matmul(g: Growth, x: Value) -> Value | None:
    """MatMul by a constant matrix, mostly with an Add behind it, on either side."""
    if x.rank not in (2, 3, 4):
        return None
    columns = int(g.random.choice(WIDTHS))
    weight = g.weight((x.shape[-1], columns), 1, x.shape[-1])
    y = g.node("MatMul", [x.name, weight], (*x.shape[:-1], columns))
    if g.random.random() < 0.2:
        return y
    operands = [y.name, g.bias(columns)]
    return g.node("Add", operands[:: g.random.choice([-1, 1])], y.shape)


def attention(g: Growth, x: Value) -> Value | None:
    """Softmax(Q K^T / s) V with heads of any size, and a projection behind."""
    if x.rank != 3 or x.shape[1] * x.shape[2] > 300:
        return None
    batch, steps, width = x.shape
    heads, size = int(g.random.integers(1, 3)), int(g.random.choice([1, 3, 4]))
    inner = heads * size

    def projected(source: Value, columns: int) -> Value:
        made = g.node(
            "MatMul",
            [source.name, g.weight((source.shape[-1], columns), 1, source.shape[-1])],
            (batch, steps, columns),
        )
        if g.random.random() < 0.3:
            return made
        return g.node("Add", [made.name, g.bias(columns)], made.shape)

    def split(y: Value, perm: list[int]) -> Value:
        apart = (batch, steps, heads, size)
        cut = g.node("Reshape", [y.name, g.integers([0, 0, heads, size])], apart)
        return g.node("Transpose", [cut.name], [apart[i] for i in perm], perm=perm)

    q, v = (split(projected(x, inner), [0, 2, 1, 3]) for _ in range(2))
    k = split(projected(x, inner), [0, 2, 3, 1])
    scores = g.node("MatMul", [q.name, k.name], (batch, heads, steps, steps))
    root = g.constant(np.sqrt(size))
    scores = g.node("Div", [scores.name, root], scores.shape)
    weights = g.node("Softmax", [scores.name], scores.shape, axis=-1)
    y = g.node("MatMul", [weights.name, v.name], (batch, heads, steps, size))
    y = g.node("Transpose", [y.name], (batch, steps, heads, size), perm=[0, 2, 1, 3])
    y = g.node("Reshape", [y.name, g.integers([0, 0, inner])], (batch, steps, inner))
    y = projected(y, width)
    return g.node("Add", [y.name, x.name], x.shape) if g.random.random() < 0.5 else y


def recurrent(g: Growth, x: Value) -> Value | None:
    """LSTM, GRU or RNN over the second axis, in one direction or both."""
    if x.rank != 3 or x.shape[1] > 12:
        return None
    batch, steps, width = x.shape
    op_type, size = str(g.random.choice(list(GATES))), int(g.random.integers(2, 6))
    ways = int(g.random.integers(1, 3))
    rows = GATES[op_type] * size
    first = g.node("Transpose", [x.name], (steps, batch, width), perm=[1, 0, 2])
    inputs = [
        first.name,
        g.weight((ways, rows, width), 1, width),
        g.weight((ways, rows, size), 1, size),
    ]
    if g.random.random() < 0.7:
        inputs.append(g.constant(g.random.standard_normal((ways, 2 * rows)) * 0.3))
    attributes: dict[str, int | str] = {"hidden_size": size}
    if ways == 2:
        attributes["direction"] = "bidirectional"
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(g.random.integers(2))
    y = g.node(op_type, inputs, (steps, ways, batch, size), **attributes)
    y = g.node("Transpose", [y.name], (batch, steps, ways, size), perm=[2, 0, 1, 3])
    return g.node("Reshape", [y.name, g.integers([0, 0, ways * size])], (batch, steps, ways * size))


def norm(g: Growth, x: Value) -> Value | None:
    """BatchNormalization, InstanceNormalization or LayerNormalization."""
    channels = x.shape[1]
    if g.opset >= 17 and g.random.random() < 0.5:
        size = x.shape[-1]
        inputs = [x.name, g.constant(g.random.uniform(0.5, 2, size)), g.bias(size)]
        return g.node("LayerNormalization", inputs, x.shape, axis=-1)
    scale, bias = g.constant(g.random.uniform(0.2, 2, channels)), g.bias(channels)
    if x.rank > 2 and g.random.random() < 0.3:
        return g.node("InstanceNormalization", [x.name, scale, bias], x.shape)
    mean = g.constant(g.random.standard_normal(channels) * 0.2)
    variance = g.constant(g.random.uniform(0.1, 3, channels))
    return g.node("BatchNormalization", [x.name, scale, bias, mean, variance], x.shape)


def _seldom(g: Growth) -> bool:
    return bool(g.random.random() < 0.3)
