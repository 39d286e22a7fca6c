"""Inputs that are pixels: what they mean, and the float model that takes them as uint8."""

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array, Reals
from onnxq.errors import QConfigError
from onnxq.graph.edit import FreeNames, graph_of, home_of, insert_behind, new_initializer
from onnxq.graph.passes.pixel_normalization import (
    BIAS,
    CHANNELS,
    LARGEST,
    NEARLY,
    WEIGHT,
    Front,
    normalization,
)
from onnxq.graph.passes.windows import is_padded
from onnxq.graph.quantized import (
    INPUTS_KEY,
    Meaning,
    QuantizedIO,
    read_quantized_io,
    write_quantized_io,
)
from onnxq.graph.types import infer_types
from onnxq.operator.nodes import constant, input_at
from onnxq.qconfig.quantized_input import Pixels, QuantizedInput, check_end

LEAST_RANK = 3
"""Axes of an image: rows, columns, and the batch or the channels."""
RAW = QuantizedIO(Meaning.PIXELS, "uint8", (1.0,), (0.0,))
"""Pixels as numbers 0.0 to 255.0."""


def quantized_pixels(
    model: ir.Model, asked: Mapping[str, QuantizedInput | Pixels]
) -> dict[str, QuantizedIO]:
    """{input name: the numbers that its pixels stand for}, of the inputs that are to be pixels."""
    inputs = {str(v.name): v for v in model.graph.inputs}
    for name in asked:
        check_end("input", name, inputs)
    return {
        name: _quantized(inputs[name], meaning)
        for name, meaning in asked.items()
        if meaning is not QuantizedInput.INTEGERS
    }


def take_pixels(model: ir.Model, quantized: Mapping[str, QuantizedIO]) -> tuple[str, ...]:
    """Rewrites a canonical model so that these inputs are uint8; sentences for the report."""
    notes: list[str] = []
    for name, meaning in quantized.items():
        taken = TakePixels(name, meaning)
        taken(model)
        notes += taken.notes
    if quantized:
        infer_types(model)
        write_quantized_io(model, INPUTS_KEY, quantized)
    return tuple(notes)


def pixels_of(model: ir.Model) -> dict[str, QuantizedIO]:
    """Inputs of a quantized model that are pixels."""
    found = read_quantized_io(model, INPUTS_KEY)
    return {
        name: quantized for name, quantized in found.items() if quantized.meaning is Meaning.PIXELS
    }


def _quantized(image: ir.Value, asked: QuantizedInput | Pixels) -> QuantizedIO:
    where = f"quantized_input: input '{image.name}'"
    shape, dtype = image.shape, image.dtype
    taken = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.UINT8)
    if dtype not in taken or shape is None or len(shape) < LEAST_RANK:
        kind = "of no known type" if dtype is None else dtype.name.lower()
        raise QConfigError(
            f"{where} is no image: it is {kind} of shape {shape}; wanted float32, float16 or uint8 "
            "of at least 3 axes. Ask for 'integers' where its numbers are no pixels."
        )
    if isinstance(asked, QuantizedInput):
        if not normalization(image, RAW).nodes:
            raise QConfigError(
                f"{where} is pixels, but the model does not normalize it: what reads it is no Sub, "
                "Mul or Div with a constant. Say what the model was trained on, "
                "(p * scale - mean) / std: Pixels(mean, std, scale), on the command line "
                "--pixels-mean, --pixels-std, --pixels-scale (1 for 0 to 255, 1/255 for 0 to 1)."
            )
        return RAW
    if dtype == ir.DataType.UINT8:
        raise QConfigError(
            f"{where} is uint8 already, so that the model normalizes its pixels itself. Ask for "
            "'pixels' alone."
        )
    return QuantizedIO(
        Meaning.PIXELS, "uint8", asked.factors, asked.zeros, _channel_axis(image, shape, asked)
    )


def _channel_axis(image: ir.Value, shape: ir.Shape, asked: Pixels) -> int:
    """Axis of the channels: 1, or the last one (channels last)."""
    channels, last = len(asked.factors), len(shape) - 1
    axes = [axis for axis in (1, last) if shape[axis] == channels]
    if channels == 1 or axes:
        return axes[0] if axes else 1
    if not isinstance(shape[1], int):
        return 1
    raise QConfigError(
        f"quantized_input: input '{image.name}' has shape {shape}; mean and std are of {channels} "
        "channels. Give one number, or one per channel."
    )


# --- A float model whose input is uint8 pixels, and its normalization part of its first Conv
#
# Between the input and its reader, x = a p + b, per channel. With one s and z for all channels,
#
#     a p + b = a (p - z) + beta,     beta = b + a z,     t = s (p - z): a DequantizeLinear of p
#
# so that, where all a = s and all beta = 0, t takes the place of x. Else a Conv takes the rest:
#
#     sum W (a p + b) = sum (W a / s) t + sum W beta
#
# The last sum is a bias where the Conv does not pad. Where it does, x is 0 at the border, and beta
# counts inside alone: a further channel has it, n above z everywhere and, as all of t, 0 in the
# padding:
#
#     p' = [p, z + n]        W' = [W a / s, sum_c W beta / (s n)]        Conv(W', s (p' - z))
# exactly
#
# n is the least for which no row of W' reaches further than it did without.


class TakePixels(ir.passes.InPlacePass):
    """x -> p: uint8 pixels, whose normalization is folded as the module says; the main graph.

    Args:
        name: of an input of floats, or of uint8 that a Cast makes floats of.
        quantized: a and b, per channel.
    Attributes:
        notes: why the normalization is still a node of its own, where it is.
    """

    def __init__(self, name: str, quantized: QuantizedIO) -> None:
        super().__init__()
        self.notes: tuple[str, ...] = ()
        self._name, self._quantized = name, quantized

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the input and what reads it."""
        (image,) = [v for v in model.graph.inputs if v.name == self._name]
        front = normalization(image, self._quantized)
        for node in front.nodes:
            made = node.outputs[0]
            before = _skip(node)
            front.end = before if front.end is made else front.end
        names = FreeNames(model)
        problem = front.why_not_folded()
        if front.qparams is not None:
            _dequantize(image, front.qparams, names)
        elif problem:
            self.notes = (
                f"input '{self._name}': its normalization stays as float nodes, because {problem}.",
            )
            _spell_out(front, names)
            _dequantize(image, (1.0, 0), names)
        else:
            _fold(image, front, names)
        image.type = ir.TensorType(ir.DataType.UINT8)
        return ir.passes.PassResult(model, modified=True)


def _skip(node: ir.Node) -> ir.Value:
    """Takes out y = f(x), so that who read y reads x; what x is."""
    x = next(v for v in node.inputs if v is not None and not v.is_initializer())
    node.outputs[0].replace_all_uses_with(x)
    graph_of(node).remove(node, safe=True)
    return x


def _dequantize(integers: ir.Value, qparams: tuple[float, int], names: FreeNames) -> ir.Value:
    """Inserts integers -> DequantizeLinear -> all readers; what it gives."""
    graph = home_of(integers)
    numbers: list[Array] = [np.array(qparams[0], np.float32), np.array(qparams[1], np.uint8)]
    inputs = [
        _initializer(graph, names.value(f"{integers.name}_{kind}"), number)
        for kind, number in zip(("scale", "zero_point"), numbers, strict=True)
    ]
    node = ir.node(
        "DequantizeLinear", [integers, *inputs], name=names.node(f"{integers.name}_dequantize")
    )
    real = node.outputs[0]
    real.name, real.shape = names.value(f"{integers.name}_numbers"), integers.shape
    real.type = ir.TensorType(ir.DataType.FLOAT)
    integers.replace_all_uses_with(real)
    node.replace_input_with(0, integers)
    insert_behind(integers, node, graph)
    return real


def _spell_out(front: Front, names: FreeNames) -> None:
    """X = a p + b as two nodes, ahead of whatever reads x."""
    image, graph = front.end, home_of(front.end)
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
    padded = any(map(is_padded, front.convs)) and np.abs(beta).max() > step * NEARLY
    above = _further(weights, a / step, beta / step, zero) if padded else 0
    for node in front.convs:
        _rewrite(node, a / step, beta, step * above, names)
    integers = _with_channel(image, front, zero + above, names) if padded else image
    _dequantize(integers, (step, zero), names)


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


def _with_channel(image: ir.Value, front: Front, integer: int, names: FreeNames) -> ir.Value:
    """The pixels and a further channel that is this integer everywhere; their readers read both."""
    graph = home_of(image)
    assert image.shape is not None, "asked before"
    axis, rank = front.order[CHANNELS], len(image.shape)
    pads = np.zeros(2 * rank, np.int64)
    pads[rank + axis] = 1
    inputs = [
        _initializer(graph, names.value(f"{image.name}_{kind}"), array)
        for kind, array in (("pads", pads), ("padding", np.array(integer, np.uint8)))
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
