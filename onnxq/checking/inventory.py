"""Inventory of any quantized model: weights that are integers, activations, the rest.

Read from the file alone:

    QDQ          integers -> DequantizeLinear -> operator; the qparams are the DequantizeLinear's
    QOperator    an operator on integers; the qparams stand behind the integers among its inputs
    blocks       integers packed by an operator with `bits` and `block_size` (MatMulNBits and the
    like)
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.untrusted.scopes import all_tensors, scoped_nodes
from onnxq.operator.nodes import find_input
from onnxq.ort import facts
from onnxq.qdq import read
from onnxq.qdq.narrow import packed_source, unpacked
from onnxq.qparams import PerBlock, PerChannel

_BEHIND_WEIGHTS = ("Transpose", "Reshape", "Cast", "Clip", "Identity", "Squeeze", "Unsqueeze")
MOST_BITS = 16  # wider integers are biases and indices
LEAST_RANK = 2  # of a weight: tables of a function and zero points have less
EXPERT_BITS = "expert_weight_bits"
"""Attribute of QMoE."""


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """Weight that is stored as integers, or that becomes integers when the model is loaded.

    Attributes:
        dtype: of the integers ("int8", "4 bits"; "int8, stored as float").
        granularity: what has a scale of its own, in words: the tensor, a channel, a group.
    """

    name: str
    node: str
    op_type: str
    dtype: str
    shape: tuple[int, ...]
    granularity: str
    size_bytes: int


@dataclass(frozen=True)
class Inventory:
    """Inventory of a quantized model.

    Attributes:
        producer: program that wrote the file, as it names itself; empty: it does not.
        nodes_on_integers: op type -> nodes of the file that compute with integers, make or read
            them.
        activations: type and granularity, in words -> places where numbers become integers.
        stored: type -> (tensors, bytes) of all constants.
    """

    producer: str
    nodes_on_integers: Mapping[str, int]
    weights: tuple[StoredWeight, ...]
    activations: Mapping[str, int]
    stored: Mapping[str, tuple[int, int]]

    @property
    def is_quantized(self) -> bool:
        """Whether weights are integers, or more computes on integers than what reads an input."""
        return bool(self.weights) or bool(self.nodes_on_integers.keys() - {read.DEQUANTIZE})

    def __repr__(self) -> str:
        return (
            f"Inventory({len(self.weights)} weights as integers, "
            f"{sum(self.nodes_on_integers.values())} nodes on integers)"
        )


def inventory(model: ir.Model) -> Inventory:
    """Inventory of a model, bodies and functions included. No kernel runs."""
    packed = {n.outputs[0].name: packed_source(n) for n, _ in scoped_nodes(model)}
    nodes = [node for node, _ in scoped_nodes(unpacked(model))]
    weights = tuple(_as_packed(w, packed.get(w.name)) for n in nodes for w in _weights_of(n))
    on_integers = Counter(node.op_type for node in nodes if catalog.is_on_integers(node))
    at_run_time = [node for node in nodes if read.is_quantize(node) and not _rounds_weight(node)]
    kinds = [f"{str(read.integer_type(n)).lower()}, {_granularity_of(n)}" for n in at_run_time]
    producer = " ".join(filter(None, (model.producer_name, model.producer_version)))
    return Inventory(
        producer, dict(on_integers.most_common()), weights, dict(Counter(kinds)), _stored(model)
    )


def _stored(model: ir.Model) -> dict[str, tuple[int, int]]:
    tensors: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for _, tensor in all_tensors(model):
        if isinstance(tensor, ir.StringTensor):
            continue
        name = tensor.dtype.name.lower()
        tensors[name] += 1
        sizes[name] += tensor.nbytes
    return {name: (tensors[name], size) for name, size in sizes.most_common()}


def _weights_of(node: ir.Node) -> Iterator[StoredWeight]:
    """The weights that a node reads as integers, or makes integers of when the model is loaded."""
    if _rounds_weight(node):
        real = node.inputs[0]
        if (
            real is not None
            and real.const_value is not None
            and len(real.shape or ()) >= LEAST_RANK
        ):
            dtype = f"{str(read.integer_type(node)).lower()}, stored as {str(real.dtype).lower()}"
            yield _weight(real, _reader(node), dtype, _granularity_of(node))
        return
    if read.is_dequantize(node):
        integers = node.inputs[0]
        if read.is_constant(node) and integers is not None and _is_weight(integers):
            dtype = str(read.integer_type(node)).lower()
            yield _weight(integers, _reader(node), dtype, _granularity_of(node))
        return
    if not catalog.is_on_integers(node) and facts.of(node).converts is None:
        return
    block = node.attributes.get_int("block_size", 0)
    for slot, value in enumerate(node.inputs):
        if value is None or not value.is_initializer() or not _is_weight(value):
            continue
        if block and slot in _zero_points(node):  # a row per row of integers: a matrix, too
            continue
        bits = node.attributes.get_int("bits", node.attributes.get_int(EXPERT_BITS, 0))
        dtype = f"{bits} bits" if bits else str(value.dtype).lower()
        granularity = _blocks_of(node, block) if block else _qparams_behind(node, slot, value)
        yield _weight(value, node, dtype, granularity)


def _as_packed(weight: StoredWeight, source: ir.Value | None) -> StoredWeight:
    """The weight as the file holds it, which the session unpacks to bytes."""
    tensor = None if source is None else source.const_value
    if tensor is None:
        return weight
    return replace(weight, dtype=tensor.dtype.name.lower(), size_bytes=tensor.nbytes)


def _rounds_weight(node: ir.Node) -> bool:
    """Whether it rounds a constant, as files of training have their weights."""
    x = node.inputs[0] if node.inputs else None
    if x is None or not read.is_quantize(node):
        return False
    return ir.convenience.get_const_tensor(x) is not None


def _reader(node: ir.Node) -> ir.Node:
    """The node that computes with a weight, behind what only moves or rounds it."""
    while (reader := next(iter(node.outputs[0].consumers()), None)) is not None:
        node = reader
        if not (
            read.is_quantize(node) or read.is_dequantize(node) or node.op_type in _BEHIND_WEIGHTS
        ):
            break
    return node


def _blocks_of(node: ir.Node, block: int) -> str:
    """Blocks of an operator's weight: their size, the scheme of their zero points, the level."""
    zeros = find_input(node, _zero_points(node)[0])
    scheme = "symmetric"
    if zeros is not None:
        is_real = zeros.dtype is not None and zeros.dtype.is_floating_point()
        scheme = "real" if is_real else "affine"
    level = node.attributes.get_int("accuracy_level", 0)
    beside = f", accuracy level {level}" if level else ""
    return f"groups of {block}, {scheme}{beside}"


def _zero_points(node: ir.Node) -> tuple[int, ...]:
    """Slots of zero points, of QMoE or of MatMulNBits and its like; absent: symmetric."""
    return (11, 12, 13) if EXPERT_BITS in node.attributes else (3,)


def _is_weight(value: ir.Value) -> bool:
    stored = None if value.dtype is None else read.STORED.get(value.dtype.name)
    rank = -1 if value.shape is None else value.shape.rank()
    return stored is not None and stored.bits <= MOST_BITS and rank >= LEAST_RANK


def _weight(value: ir.Value, reader: ir.Node, dtype: str, granularity: str) -> StoredWeight:
    tensor = value.const_value
    assert tensor is not None  # an initializer
    shape = tuple(map(int, tensor.shape.numpy()))
    at = str(reader.name or next((v.name for v in reader.outputs if v.name), ""))  # of other tools
    return StoredWeight(
        str(value.name), at, reader.op_type, dtype, shape, granularity, tensor.nbytes
    )


def _granularity_of(node: ir.Node) -> str:
    qparams = read.qparams_of(node)
    if isinstance(qparams, read.Unread):
        return qparams.reason
    granularity = qparams.granularity
    if isinstance(granularity, PerBlock):
        return f"groups of {granularity.size} on axis {granularity.axis}"
    if isinstance(granularity, PerChannel):
        return f"per channel of axis {granularity.axis}"
    return "per tensor"


def _qparams_behind(node: ir.Node, slot: int, weight: ir.Value) -> str:
    """Granularity of an operator's weight: its scales follow it, are positive, and fit its shape.

    ONNX and ONNX Runtime name them `w, w_scale, w_zero_point`; a bias among them has other signs.
    """
    shape = () if weight.shape is None else tuple(weight.shape)
    for value in node.inputs[slot + 1 :]:
        tensor = None if value is None else value.const_value
        if tensor is None or not tensor.dtype.is_floating_point():
            continue
        if tensor.size == 1:
            return "per tensor"
        if tensor.size in (*shape, math.prod(shape[::2])) and bool(np.all(tensor.numpy() > 0)):
            return "per channel"
    return "scale computed behind it"
