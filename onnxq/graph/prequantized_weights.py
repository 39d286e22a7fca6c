"""Weights that a file stores as integers already: their scales, which plans take over.

    w = (w_q - zero_point) * scale        moved, cast, multiplied by a factor per channel

The canonical model has w in float32, and `graph.folded` knows how it was computed. The same nodes,
carried out on the scale of every number in place of the number, say where that scale is now.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.affine import fake_quantize
from onnxq.core.arrays import Singles
from onnxq.dtypes import BYTE_BITS, INT8
from onnxq.errors import counted
from onnxq.graph.folded import Folded, computed_from, depth_of, folded_of
from onnxq.graph.weights import constant_array
from onnxq.observers.tensor_noise import decibels
from onnxq.observers.weight_observation import WeightKey, observe_weight
from onnxq.operator.site import MICROSOFT
from onnxq.qparams import PerChannel, PerTensor, QParams

DEQUANTIZE = "DequantizeLinear"
SCALE, ZERO_POINT = 1, 2  # slots
_FACTORS = ("Mul", "Div")
_SAME = ("Cast", "Clip", "Max", "Min", "Relu")  # a number that is left over keeps its scale
_NEAR = 1e-3  # of an LSB: w = float32(q * scale) * factor is off by some 1e-5 at q = 127
FLOAT_BITS = 32
_IN_GROUPS = ("MatMulNBits", "GatherBlockQuantized", "QMoE")
KEPT_DB = 90.0  # rounding in float32 alone


@dataclass(frozen=True, slots=True, eq=False)
class PrequantizedWeight:
    """A weight that the file stores as integers.

    Attributes:
        real: float32, the weight.
        scale: of each number, float32, of its shape; positive.
        zero_point: of each number, float32.
        dtype: of the integers in the file.
    """

    real: Singles
    scale: Singles
    zero_point: Singles
    dtype: ir.DataType

    @property
    def centred(self) -> Singles:
        """Integers less their zero points, as whole float32 numbers; NaN where no scale is known.

        A number that is no multiple of its scale was moved by something else than a factor.
        """
        lsb = self.real / self.scale
        whole = np.rint(lsb)
        return np.where(np.abs(lsb - whole) <= _NEAR, whole, np.float32(np.nan))


def stores_groups(node: ir.Node) -> bool:
    """Whether ONNX Runtime's kernel of the node reads float activations and weights in groups."""
    return node.domain == MICROSOFT and node.op_type in _IN_GROUPS


def is_prequantized(value: ir.Value) -> bool:
    """Whether the file stores the constant as integers."""
    return _leaf(value.const_value) is not None


def stored_bits(value: ir.Value) -> int:
    """Bits of each number in the file; 32 of a constant that it stores as it is."""
    leaf = _leaf(value.const_value)
    integers = None if leaf is None else leaf.inputs[0]
    return FLOAT_BITS if integers is None else integers.dtype.bitwidth


def find_prequantized(value: ir.Value) -> PrequantizedWeight | None:
    """The constant as the file stores it, if that is integers."""
    tensor = value.const_value
    leaf = _leaf(tensor)
    if leaf is None or tensor is None:
        return None
    scale, zero_point = _carried(tensor, SCALE), _carried(tensor, ZERO_POINT)
    integers = leaf.inputs[0]
    if scale is None or zero_point is None or integers is None or not (scale > 0).all():
        return None
    return PrequantizedWeight(constant_array(value), scale, zero_point, integers.dtype)


def prequantized_qparams(value: ir.Value, axis: int | None, limit: int) -> QParams | None:
    """int8 qparams whose integers are those that the file has; None: it has none that fit.

    Args:
        value: a constant.
        axis: of the channels that may have scales of their own; None: one scale for all.
        limit: integers have to lie in [-limit, limit]; -128 goes with 127.
    """
    given = find_prequantized(value) if is_prequantized(value) else None
    if given is None:
        return None
    centred = given.centred
    low, high = centred.min(initial=0), centred.max(initial=0)
    least = INT8.qmin if limit == INT8.qmax else -limit
    if not (low >= least and high <= limit):  # NaN is neither
        return None
    first = given.scale.reshape(-1)[:1]
    if (given.scale == first).all():
        return QParams(first.reshape(()), np.zeros((), np.int8), INT8, PerTensor())
    if axis is None:
        return None
    rows = np.moveaxis(given.scale, axis, 0).reshape(given.scale.shape[axis], -1)
    if not (rows == rows[:, :1]).all():
        return None
    scale = np.ascontiguousarray(rows[:, 0])
    return QParams(scale, np.zeros(scale.shape, np.int8), INT8, PerChannel(axis))


def qparams_of_weight(value: ir.Value, key: WeightKey) -> tuple[QParams, list[str]]:
    """QParams of a weight: those that the file has, where they fit, else the observer's; notes."""
    observer = key.observer()
    rank = len(constant_array(value).shape)
    limit = min(key.limit, observer.quant_max)
    given = None
    if observer.dtype == INT8 and observer.qscheme.symmetric:
        axis = key.axis % rank if observer.qscheme.per_channel else None
        given = prequantized_qparams(value, axis, limit)
    if given is None:
        return observe_weight(constant_array(value), key)
    if axis is None or given.scale.ndim:
        return given, []
    scale = np.full(constant_array(value).shape[axis], given.scale)
    return QParams(scale, np.zeros(scale.shape, np.int8), INT8, PerChannel(axis)), []


def notes_on_integers(planned: Mapping[str, tuple[ir.Value, QParams]], because: str) -> list[str]:
    """Notes on weights that the file stores as integers, and on what other integers cost."""
    left_db = {}
    for name, (value, qparams) in planned.items():
        real = constant_array(value)
        left_db[name] = sqnr_of(real, fake_quantize(real, qparams))
    return words_on_integers(left_db, because)


def words_on_integers(left_db: Mapping[str, float], because: str) -> list[str]:
    """Sentences on weights that the file stores as integers."""
    lost = [f"'{name}' ({db:.1f} dB)" for name, db in left_db.items() if db < KEPT_DB]
    count, notes = len(left_db) - len(lost), []
    if lost:
        notes.append(
            f"{len(lost)} of the weights that the file stores as integers need others {because}: "
            f"{counted(lost)}"
        )
    if count:
        notes.append(
            f"{count} weight{'s keep' if count > 1 else ' keeps'} the integers and scales that "
            "the file has"
        )
    return notes


def count_prequantized(model: ir.Model) -> int:
    """How many weights of a canonical model the file stores as integers."""
    values = [v for graph in model.graphs() for v in graph.initializers.values()]
    return sum(len(v.const_value.shape) > 1 and is_prequantized(v) for v in values if v.const_value)


def notes_on_stored(model: ir.Model) -> list[str]:
    """One note where the file stores weights as integers."""
    count = count_prequantized(model)
    if not count:
        return []
    return [
        f"the file stores {count} weight{'s' if count > 1 else ''} as integers already: where a "
        "node computes in float, its weight stays stored as it is"
    ]


def sqnr_of(real: Singles, rounded: Singles) -> float:
    """Power of a weight over that of its error, in dB."""
    return decibels(_power(real), _power(rounded - real))


def _power(array: Singles) -> float:
    return float(np.square(array, dtype=np.float64).sum())


def _leaf(tensor: ir.TensorProtocol | None) -> Folded | None:
    """The node that made real numbers of integers, of those that the tensor was computed by."""
    found = map(folded_of, [] if tensor is None else computed_from(tensor))
    return next((folded for folded in found if folded and _reads_integers(folded)), None)


def _reads_integers(folded: Folded) -> bool:
    """Whether it is a DequantizeLinear, or a Cast of stored integers of at most 8 bits."""
    if folded.op_type != "Cast":
        return folded.op_type == DEQUANTIZE
    stored = folded.inputs[0]
    if stored is None or folded_of(stored) is not None:
        return False
    return stored.dtype.is_integer() and stored.dtype.bitwidth <= BYTE_BITS


def _carried(tensor: ir.TensorProtocol, slot: int) -> Singles | None:
    """The scale (or zero point) of each number, moved as the numbers of the tensor were."""
    known: dict[int, Singles | None] = {}
    for one in sorted(computed_from(tensor), key=depth_of):  # what it reads comes before it
        folded = folded_of(one)
        known[id(one)] = None if folded is None else _moved(one, folded, slot, known)
    return known[id(tensor)]


def _moved(
    tensor: ir.TensorProtocol, folded: Folded, slot: int, known: Mapping[int, Singles | None]
) -> Singles | None:
    """The scale (or zero point) of each number of a tensor, from those of its node's inputs."""
    if _reads_integers(folded):
        return _of_each_number(folded, slot)
    inputs = [x for x in folded.inputs if x is not None]
    found = [known[id(x)] for x in inputs]
    first = next((array for array in found if array is not None), None)
    if first is None or folded.op_type in _SAME:
        return first
    if folded.op_type == "Sub":  # the zero point, behind a Cast
        return first if slot == SCALE else np.asarray(first + inputs[1].numpy(), np.float32)
    pairs = list(zip(found, inputs, strict=True))
    if folded.op_type in _FACTORS:
        if slot == ZERO_POINT:
            return np.broadcast_to(first, tensor.shape.numpy())
        left, right = (np.abs(x.numpy()) if array is None else array for array, x in pairs)
        return np.asarray(left * right if folded.op_type == "Mul" else left / right)
    moved = folded.compute([x.numpy() if array is None else array for array, x in pairs])
    return np.asarray(moved, np.float32) if moved.shape == tuple(tensor.shape.numpy()) else None


def _of_each_number(folded: Folded, slot: int) -> Singles:
    """The scale or zero point of each integer, as wide as the integers."""
    integers, *others = folded.inputs
    assert integers is not None
    shape = tuple(integers.shape.numpy())
    stored = others[slot - 1] if slot <= len(others) else None
    if stored is None:
        return np.broadcast_to(np.float32(slot == SCALE), shape)
    array = np.asarray(stored.numpy(), np.float32)
    attributes = {a.name: a.value for a in folded.attributes}
    axis = int(attributes.get("axis", 1))
    if block := int(attributes.get("block_size", 0)):
        return np.repeat(array, block, axis=axis).take(range(shape[axis]), axis=axis)
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), shape)
    wide = [1] * len(shape)
    wide[axis] = shape[axis]
    return np.broadcast_to(array.reshape(wide), shape)
