"""Normalization of an input: the affine nodes right behind it, as one function of its pixels."""

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array, Reals
from onnxq.graph.affine import affine_of
from onnxq.graph.edit import sole_reader
from onnxq.graph.quantized import QuantizedIO
from onnxq.operator.nodes import constant, find_input

LARGEST = 255
NEARLY = 2.0**-12
"""Distance, in pixels, that float32 leaves between a mean and the pixel that it was computed from:
255 * 2^-24, some operations of it."""
CHANNELS = 1  # axis of a Conv's input
WEIGHT, BIAS = 1, 2
_SIGNS = {"Add": 1.0, "Sub": -1.0}
_POWERS = {"Mul": 1, "Div": -1}


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
    def qparams(self) -> tuple[float, int] | None:
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
        """Why the readers cannot take the rest of the normalization; the empty string: they can."""
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


def normalization(image: ir.Value, quantized: QuantizedIO) -> Front:
    """The affine nodes behind an input whose pixels `quantized` says the meaning of."""
    assert image.shape is not None, "asked before"
    rank = len(image.shape)
    scale = quantized.spread(quantized.scale, rank)
    front = Front(
        image, scale, -scale * quantized.spread(quantized.zero_point, rank), tuple(range(rank))
    )
    while (node := sole_reader(front.end)) is not None:
        result = node.outputs[0]
        if node.graph is not image.graph or result.is_graph_output():
            break
        if node.op_type == "Transpose" and not node.domain:
            _turn(front, node)
        elif (step := _affine(node, node.inputs.index(front.end), rank)) is not None:
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
        return None if other is None else _saturation_mode(node.op_type, slot, other, rank)
    norm = affine_of(node, constant)
    if norm is None or slot != 0:
        return None
    shape = [-1 if axis == CHANNELS else 1 for axis in range(rank)]
    factor = norm.factor.reshape(shape)
    return factor, norm.beta.reshape(shape) - norm.mean.reshape(shape) * factor


def _saturation_mode(
    op_type: str, slot: int, constant: Array, rank: int
) -> tuple[Reals, Reals] | None:
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
