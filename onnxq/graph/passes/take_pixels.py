"""A float model whose input is uint8 pixels, and its normalisation part of its first Conv.

Between the input and its reader, x = a p + b, per channel. With one s and z for all channels,

    a p + b = a (p - z) + beta,     beta = b + a z,     t = s (p - z): a DequantizeLinear of p

so that, where all a = s and all beta = 0, t takes the place of x. Else a Conv takes the rest:

    sum W (a p + b) = sum (W a / s) t + sum W beta

The last sum is a bias where the Conv does not pad. Where it does, x is 0 at the border, and beta
counts inside alone: a further channel has it, n above z everywhere and, as all of t, 0 in the
padding:

    p' = [p, z + n]        W' = [W a / s, sum_c W beta / (s n)]        Conv(W', s (p' - z)) exactly

n is the least for which no row of W' reaches further than it did without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.affine import affine_of
from onnxq.graph.edit import FreeNames, graph_of, insert_behind, new_initializer
from onnxq.operator.nodes import constant, find_input, input_at

if TYPE_CHECKING:
    from onnxq.core.arrays import Array, Reals
    from onnxq.graph.coded import Coded

LARGEST = 255
NEARLY = 2.0**-12
"""Distance, in pixels, that float32 leaves between a mean and the pixel that it was computed from:
255 * 2^-24, some operations of it."""
CHANNELS = 1  # axis of a Conv's input
WEIGHT, BIAS = 1, 2
_SIGNS = {"Add": 1.0, "Sub": -1.0}
_POWERS = {"Mul": 1, "Div": -1}


class TakePixels(ir.passes.InPlacePass):
    """x -> p: uint8 pixels, whose normalisation is folded as the module says; the main graph.

    Args:
        name: of an input of floats, or of uint8 that a Cast makes floats of.
        coded: a and b, per channel.

    Attributes:
        notes: why the normalisation is still a node of its own, where it is.
    """

    def __init__(self, name: str, coded: Coded) -> None:
        super().__init__()
        self.notes: tuple[str, ...] = ()
        self._name, self._coded = name, coded

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the input and what reads it."""
        (image,) = [v for v in model.graph.inputs if v.name == self._name]
        front = normalisation(image, self._coded)
        for node in front.nodes:
            made = node.outputs[0]
            before = _skip(node)
            front.end = before if front.end is made else front.end
        names = FreeNames(model)
        problem = front.why_not_folded()
        if front.grid is not None:
            _dequantize(image, front.grid, names)
        elif problem:
            self.notes = (
                f"input '{self._name}': its normalisation stays as float nodes, because {problem}.",
            )
            _spell_out(front, names)
            _dequantize(image, (1.0, 0), names)
        else:
            _fold(image, front, names)
        image.type = ir.TensorType(ir.DataType.UINT8)
        return ir.passes.PassResult(model, modified=True)


@dataclass
class Front:
    """The affine nodes right behind an input: x = a p + b.

    Attributes:
        end: the value behind them, or the input.
        a: float64, of the rank of x and broadcast to it.
        b: likewise.
        nodes: Cast, Add, Sub, Mul, Div and BatchNormalization on the way.
        order: axis of x -> axis of p; other than the identity behind a Transpose.
    """

    end: ir.Value
    a: Reals
    b: Reals
    order: tuple[int, ...]
    nodes: list[ir.Node] = field(default_factory=list)

    @property
    def grid(self) -> tuple[float, int] | None:
        """(s, z) of a t that is x; None: no such s and z are."""
        step, zeros = float(self.a.flat[0]), -self.b / self.a
        zero = round(float(zeros.flat[0]))
        same = np.allclose(self.a, step, rtol=NEARLY / LARGEST, atol=0)
        if step <= 0 or not same or not 0 <= zero <= LARGEST or abs(zeros - zero).max() > NEARLY:
            return None
        return float(np.float32(step)), zero

    @property
    def convs(self) -> list[ir.Node]:
        """The nodes that read x, each once."""
        return list(dict.fromkeys(use.node for use in self.end.uses()))

    def why_not_folded(self) -> str:
        """Why the readers cannot take the rest of the normalisation; the empty string: they can."""
        for node in self.convs:
            weight = constant(node, WEIGHT) if node.op_type == "Conv" and not node.domain else None
            slots = [use.idx for use in self.end.uses() if use.node is node]
            if weight is None or slots != [0] or node.graph is not self.end.graph:
                return f"{node.op_type} '{node.name}' reads it"
            if node.attributes.get_int("group", 1) != 1:
                return f"Conv '{node.name}' has groups"
            if find_input(node, BIAS) is not None and constant(node, BIAS) is None:
                return f"the bias of Conv '{node.name}' is computed at run time"
            if {*self.a.shape, *self.b.shape} - {1, weight.shape[CHANNELS]}:
                return f"it has not the channels of Conv '{node.name}'"
        varying = [axis for x in (self.a, self.b) for axis, n in enumerate(x.shape) if n > 1]
        if set(varying) - {CHANNELS}:
            return "it differs along other axes than the channels"
        return "an output of the model is it" if self.end.is_graph_output() else ""


def normalisation(image: ir.Value, coded: Coded) -> Front:
    """The affine nodes behind an input whose pixels `coded` says the meaning of."""
    assert image.shape is not None, "asked before"
    rank = len(image.shape)
    scale = coded.spread(coded.scale, rank)
    front = Front(image, scale, -scale * coded.spread(coded.zero_point, rank), tuple(range(rank)))
    while len(front.end.uses()) == 1 and not front.end.is_graph_output():
        (use,) = front.end.uses()
        node, result = use.node, use.node.outputs[0]
        if node.graph is not image.graph or result.is_graph_output():
            break
        if node.op_type == "Transpose" and not node.domain:
            _turn(front, node)
        elif (step := _affine(node, use.idx, rank)) is not None:
            factor, offset = step
            front.a, front.b = front.a * factor, front.b * factor + offset
            front.nodes.append(node)
        else:
            break
        front.end = result
    return front


def _turn(front: Front, node: ir.Node) -> None:
    order = node.attributes.get_ints("perm", tuple(reversed(range(len(front.order)))))
    front.a, front.b = (np.transpose(x, order) for x in (front.a, front.b))
    front.order = tuple(front.order[axis] for axis in order)


def _affine(node: ir.Node, slot: int, rank: int) -> tuple[Reals, Reals] | None:
    """(factor, offset) of y = factor x + offset; None: the node computes something else."""
    one, zero = np.ones([1] * rank), np.zeros([1] * rank)
    if node.domain:
        return None
    if node.op_type == "Cast":
        is_float = node.attributes.get_int("to", 0) == ir.DataType.FLOAT.value
        return (one, zero) if is_float else None
    if node.op_type in {*_SIGNS, *_POWERS}:
        other = constant(node, 1 - slot)
        return None if other is None else _arithmetic(node.op_type, slot, other, rank)
    norm = affine_of(node, constant)
    if norm is None or slot != 0:
        return None
    shape = [-1 if axis == CHANNELS else 1 for axis in range(rank)]
    factor = norm.factor.reshape(shape)
    return factor, norm.beta.reshape(shape) - norm.mean.reshape(shape) * factor


def _arithmetic(op_type: str, slot: int, constant: Array, rank: int) -> tuple[Reals, Reals] | None:
    if constant.dtype.kind != "f" or constant.ndim > rank:
        return None
    c = constant.astype(np.float64).reshape([1] * (rank - constant.ndim) + [*constant.shape])
    if op_type in _SIGNS:
        sign = _SIGNS[op_type]
        return (np.ones_like(c), c * sign) if slot == 0 else (np.full_like(c, sign), c)
    if op_type == "Div" and slot == 1:
        return None  # c / x
    if not (np.isfinite(c).all() and c.all()):
        return None
    return c ** _POWERS[op_type], np.zeros_like(c)


def _skip(node: ir.Node) -> ir.Value:
    """Takes out y = f(x), so that who read y reads x; what x is."""
    x = next(v for v in node.inputs if v is not None and not v.is_initializer())
    y = node.outputs[0]
    y.replace_all_uses_with(x)
    graph_of(node).remove(node, safe=True)
    return x


def _dequantize(codes: ir.Value, grid: tuple[float, int], names: FreeNames) -> ir.Value:
    """Inserts codes -> DequantizeLinear -> all readers; what it gives."""
    graph = codes.graph
    assert isinstance(graph, ir.Graph)
    numbers: list[Array] = [np.array(grid[0], np.float32), np.array(grid[1], np.uint8)]
    inputs = [
        _initializer(graph, names.value(f"{codes.name}_{kind}"), number)
        for kind, number in zip(("scale", "zero_point"), numbers, strict=True)
    ]
    node = ir.node(
        "DequantizeLinear", [codes, *inputs], name=names.node(f"{codes.name}_dequantize")
    )
    real = node.outputs[0]
    real.name, real.shape = names.value(f"{codes.name}_numbers"), codes.shape
    real.type = ir.TensorType(ir.DataType.FLOAT)
    codes.replace_all_uses_with(real)
    node.replace_input_with(0, codes)
    insert_behind(codes, node, graph)
    return real


def _spell_out(front: Front, names: FreeNames) -> None:
    """X = a p + b as two nodes, ahead of whatever reads x."""
    image = front.end
    graph = image.graph
    assert isinstance(graph, ir.Graph)
    for op_type, numbers in (
        ("Add", front.b),
        ("Mul", front.a),
    ):  # each goes ahead of the one before
        name = names.value(f"{image.name}_{op_type.lower()}")
        node = ir.node(op_type, [image, _initializer(graph, name, numbers.astype(np.float32))])
        node.name = names.node(name)
        made = node.outputs[0]
        made.name = names.value(f"{name}_result")
        made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), image.shape
        image.replace_all_uses_with(made, replace_graph_outputs=True)
        node.replace_input_with(0, image)
        insert_behind(image, node, graph)


def _initializer(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    return new_initializer(graph, name, ir.Tensor(array, name=name))


def _fold(image: ir.Value, front: Front, names: FreeNames) -> None:
    """Puts t in the place of x, and the rest into the Convs."""
    weights = [constant(node, WEIGHT) for node in front.convs]
    channels = next(w.shape[CHANNELS] for w in weights if w is not None)
    a, b = (np.broadcast_to(x.reshape(-1), (channels,)) for x in (front.a, front.b))
    step = float(np.float32(np.abs(a).max()))
    zero = int(np.clip(np.rint(np.mean(-b / a)), 0, LARGEST))
    beta = b + a * zero
    padded = any(map(_pads, front.convs)) and np.abs(beta).max() > step * NEARLY
    above = _further(weights, a / step, beta / step, zero) if padded else 0
    for node in front.convs:
        _rewrite(node, a / step, beta, step * above, names)
    codes = _with_channel(image, front, zero + above, names) if padded else image
    _dequantize(codes, (step, zero), names)


def _pads(conv: ir.Node) -> bool:
    auto = conv.attributes.get_string("auto_pad", "NOTSET")
    return auto.startswith("SAME") or (
        auto == "NOTSET" and any(conv.attributes.get_ints("pads", ()))
    )


def _further(weights: list[Array | None], factor: Reals, beta: Reals, zero: int) -> int:
    """Steps n of the further channel above z; below 0 where there is more room there."""
    ratio = 1.0
    for weight in weights:
        assert weight is not None, "asked before"
        w = weight.astype(np.float64)
        rows = np.abs(w * _along(factor, w.ndim)).reshape(len(w), -1).max(axis=1, initial=0)
        new = np.abs((w * _along(beta, w.ndim)).sum(axis=CHANNELS)).reshape(len(w), -1).max(axis=1)
        ratio = max(ratio, float((new / np.where(rows > 0, rows, np.inf)).max(initial=0)))
    sign, room = max((1, LARGEST - zero), (-1, zero), key=lambda way: way[1])
    return sign * min(math.ceil(ratio), room)


def _along(numbers: Reals, rank: int) -> Reals:
    return numbers.reshape([-1 if axis == CHANNELS else 1 for axis in range(rank)])


def _rewrite(conv: ir.Node, factor: Reals, beta: Reals, unit: float, names: FreeNames) -> None:
    """Folds factor and beta into the Conv; a further channel of that unit has beta, or the bias."""
    weight = constant(conv, WEIGHT)
    assert weight is not None, "asked before"
    w = weight.astype(np.float64)
    made, rest = w * _along(factor, w.ndim), w * _along(beta, w.ndim)
    if unit:
        made = np.concatenate([made, rest.sum(axis=CHANNELS, keepdims=True) / unit], CHANNELS)
    graph, stem = graph_of(conv), f"{input_at(conv, WEIGHT).name}_of_pixels"
    value = _initializer(graph, names.value(stem), made.astype(np.float32))
    conv.replace_input_with(WEIGHT, value)
    if unit or not beta.any():
        return
    bias = constant(conv, BIAS)
    total = rest.reshape(len(w), -1).sum(axis=1) + (0.0 if bias is None else bias)
    value = _initializer(graph, names.value(f"{stem}_bias"), total.astype(np.float32))
    conv.resize_inputs(BIAS + 1)
    conv.replace_input_with(BIAS, value)


def _with_channel(image: ir.Value, front: Front, code: int, names: FreeNames) -> ir.Value:
    """The pixels and a further channel that has this code everywhere; their readers read both."""
    graph = image.graph
    assert isinstance(graph, ir.Graph)
    assert image.shape is not None, "asked before"
    axis, rank = front.order[CHANNELS], len(image.shape)
    pads = np.zeros(2 * rank, np.int64)
    pads[rank + axis] = 1
    inputs = [
        _initializer(graph, names.value(f"{image.name}_{kind}"), array)
        for kind, array in (("pads", pads), ("padding", np.array(code, np.uint8)))
    ]
    node = ir.node("Pad", [image, *inputs], name=names.node(f"{image.name}_channel"))
    made = node.outputs[0]
    made.name = names.value(f"{image.name}_with_channel")
    made.type = ir.TensorType(ir.DataType.UINT8)
    made.shape = _one_more(image.shape, axis)
    image.replace_all_uses_with(made)
    node.replace_input_with(0, image)
    insert_behind(image, node, graph)
    value, at = made, axis
    while len(value.uses()) == 1 and (turn := next(iter(value.uses())).node).op_type == "Transpose":
        value = turn.outputs[0]
        at = list(turn.attributes.get_ints("perm", tuple(reversed(range(rank))))).index(at)
        if value.shape is not None:
            value.shape = _one_more(value.shape, at)
    return made


def _one_more(shape: ir.Shape, axis: int) -> ir.Shape:
    sizes = [n + 1 if i == axis and isinstance(n, int) else n for i, n in enumerate(shape.dims)]
    return ir.Shape(sizes)
