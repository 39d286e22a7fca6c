"""Fake quantization that was written out in float operators, as QuantizeLinear, DequantizeLinear.

An autograd.Function with a straight-through gradient exports as what its forward computes:

    y = (clip(round(x / s) + z, low, high) - z) * s      Div Round Add Clip Sub Mul
    y = clip(round(x * r), low, high) * s                Mul Round Clip Mul, r = 1 / s
    y = round(clip(x / s, low, high)) * s                the clip first

Where s, z, low and high are constants and low and high are whole numbers of 8 bits, that is
Q -> DQ, with a Clip on integers between them where low and high are not min and max of the type.
A weight whose fake quantization the exporter has computed already holds multiples of a scale per
channel, which are found again.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.dtypes import INT8, UINT8
from onnxq.graph.edit import FreeNames, graph_of, replace, sole_reader
from onnxq.graph.passes.unused import RemoveUnused
from onnxq.qdq.read import WEIGHT, array_of, dequantizer
from onnxq.qdq.write import clip_integers, constants_of, feed, new_graph_qparams
from onnxq.qparams import SHIFT, PerChannel, PerTensor, QParams

F32 = npt.NDArray[np.float32]

ULP = 2.0**-23  # of float32: 1 / s is off by half of it, and so is s where it was computed from r
MATRIX = 2
_CLOSE = 1e-3  # of an LSB: how far multiples of a scale in float32 may be from whole numbers
WEIGHTS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0, "MatMul": 1}
"""Operators with weights in slot 1 -> axis of their channels, of Gemm where transB = 1."""


@dataclass(frozen=True, slots=True)
class _Found:
    """One fake quantization."""

    x: ir.Value
    y: ir.Value
    scale: F32
    zero_point: int
    low: int
    high: int


def restore_quantizers(model: ir.Model) -> int:
    """Puts Q and DQ in the place of what computes them; returns how many were found."""
    names = FreeNames(model)
    written = 0
    for node in list(model.graph):
        found = _read(node) if node.op_type in ("Div", "Mul") else None
        if found is not None and _write(found, names):
            written += 1
    if not written:
        return 0
    for node in list(model.graph):
        _restore_weight(node, names)
    RemoveUnused()(model)
    return written


# --- reading


@dataclass(slots=True)
class _Chain:
    """Steps applied so far to v = x / scale: min(max(round(v), low), high) + offset."""

    low: float = -np.inf
    high: float = np.inf
    offset: float = 0.0
    clip_offset: float = 0.0
    rounded: bool = False

    def apply(self, node: ir.Node) -> bool:
        """Adds a node; False where it is none of those that fake quantization consists of."""
        if node.op_type == "Round":
            whole, self.rounded = self.offset == round(self.offset), True
            return whole
        if node.op_type == "Clip":
            limits = _min_max(node)
            return limits is not None and self._clip(*limits)
        number = _uniform(array_of(node, 1))
        if number is None:
            return False
        if node.op_type in ("Add", "Sub"):
            self.offset += number if node.op_type == "Add" else -number
            return True
        return self._clip(*((-np.inf, number) if node.op_type == "Min" else (number, np.inf)))

    def _clip(self, low: float, high: float) -> bool:
        self.low = max(self.low, low - self.offset)
        self.high = min(self.high, high - self.offset)
        self.clip_offset = self.offset
        return True

    @property
    def is_closed(self) -> bool:
        """Whether the result is a whole number of steps within limits."""
        limits = np.array([self.low, self.high, self.clip_offset])
        whole = bool(np.isfinite(limits).all()) and bool((limits == np.rint(limits)).all())
        return whole and self.rounded and self.offset == 0 and self.low < self.high


def _read(first: ir.Node) -> _Found | None:
    """The fake quantization that begins with a division; None: it is something else."""
    # x / s, or x * (1 / s)
    divisor = array_of(first, 1) if first.op_type == "Div" else _inverse(_factor(first))
    if divisor is None or not (divisor > 0).all():
        return None
    chain, value = _Chain(), first.outputs[0]
    steps = ("Round", "Add", "Sub", "Clip", "Min", "Max")
    while (node := sole_reader(value)) is not None and node.op_type in steps:
        if node.inputs[0] is not value or not chain.apply(node):
            return None
        value = node.outputs[0]
    if node is None or not chain.is_closed:
        return None
    scale = _multiplier(node)
    if scale is None or scale.shape != divisor.shape:
        return None
    if not np.allclose(scale, divisor, rtol=2 * ULP, atol=0):
        return None
    x = (
        first.inputs[1]
        if first.op_type == "Mul" and array_of(first, 1) is None
        else first.inputs[0]
    )
    if x is None:
        return None
    zero = int(chain.clip_offset)
    return _Found(x, node.outputs[0], scale, zero, int(chain.low) + zero, int(chain.high) + zero)


def _min_max(node: ir.Node) -> tuple[float, float] | None:
    """Limits of a Clip, which may have one only; None: they are computed."""
    limits = [-np.inf, np.inf]
    for slot in (1, 2):
        if slot >= len(node.inputs) or node.inputs[slot] is None:
            continue
        number = _uniform(array_of(node, slot))
        if number is None:
            return None
        limits[slot - 1] = number
    return limits[0], limits[1]


def _uniform(array: F32 | None) -> float | None:
    """The number that a constant holds everywhere."""
    if array is None or not array.size or not (array == array.flat[0]).all():
        return None
    return float(array.flat[0])


def _multiplier(node: ir.Node) -> F32 | None:
    """S of v * s or v / (1 / s)."""
    if node.op_type == "Mul":
        return _factor(node)
    return _inverse(array_of(node, 1)) if node.op_type == "Div" else None


def _factor(node: ir.Node) -> F32 | None:
    found = array_of(node, 1)
    return array_of(node, 0) if found is None else found


def _inverse(array: F32 | None) -> F32 | None:
    if array is None or array.dtype != np.float32 or not (array > 0).all():
        return None
    return (1 / array.astype(np.float64)).astype(np.float32)


# --- writing


def _write(found: _Found, names: FreeNames) -> bool:
    """Q [-> Clip on integers] -> DQ in the place of the chain.

    False where its integers have no type.

    Activations become uint8 and weights int8, shifted by 128 where they were the other: the real
    values are the same, and these are the types that ONNX Runtime has its fastest kernels for.
    """
    is_weight = found.x.is_initializer()
    dtype = INT8 if is_weight else UINT8
    shift = SHIFT if not is_weight and found.low < 0 else 0
    if is_weight and found.high > INT8.qmax:
        shift = -SHIFT
    low, high, zero = found.low + shift, found.high + shift, found.zero_point + shift
    if not (dtype.qmin <= low and high <= dtype.qmax and dtype.qmin <= zero <= dtype.qmax):
        return False
    axis = _axis(found)
    if axis is None:
        return False
    node = found.y.producer()
    assert node is not None
    scale = found.scale.reshape(-1) if axis >= 0 else found.scale.reshape(())
    granularity = PerChannel(axis) if axis >= 0 else PerTensor()
    qparams = QParams(scale, np.full(scale.shape, zero), dtype, granularity)
    stem = str(found.y.name)
    new = constants_of(node, names)
    pair = new_graph_qparams(new, stem, qparams)
    made = [pair.quantize(found.x, names.node(f"{stem}_q"), names.value(f"{stem}_integers"))]
    integers = made[0].outputs[0]
    if (low, high) != (dtype.qmin, dtype.qmax):
        clip = clip_integers(integers, dtype, (low, high), str(integers.name), new)
        made.append(clip)
        integers = clip.outputs[0]
        clip.name, integers.name = names.node(f"{stem}_clip"), names.value(f"{stem}_clipped")
    graph_of(node).insert_before(node, made)
    replace(node, pair.dequantize(integers, names.node(f"{stem}_dq")), names)
    return True


def _axis(found: _Found) -> int | None:
    """Axis of the channels; -1: one scale; None: neither."""
    if found.scale.size == 1:
        return -1
    long = [axis for axis, size in enumerate(found.scale.shape) if size > 1]
    rank = None if found.x.shape is None else len(found.x.shape)
    if len(long) != 1 or rank is None:
        return None
    return long[0] + rank - found.scale.ndim


# --- weights that were computed when the model was exported


def _restore_weight(node: ir.Node, names: FreeNames) -> None:
    """A float weight beside a quantized input, if its channels are multiples of a scale each."""
    if node.op_type not in WEIGHTS or dequantizer(node.inputs[0]) is None:
        return
    weight, value = array_of(node, 1), node.inputs[1]
    if value is None or weight is None or weight.dtype != np.float32 or weight.ndim < MATRIX:
        return
    axis = WEIGHTS[node.op_type]
    if node.op_type == "Gemm" and not node.attributes.get_int("transB", 0):
        axis = 1
    rows = np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    scale = np.array([_step_of(row) for row in rows], np.float32)
    if not np.isfinite(scale).all():
        return
    stem, zeros = str(value.name), np.zeros(len(scale), np.int8)
    qparams = QParams(scale, zeros, INT8, PerChannel(axis))
    pair = new_graph_qparams(constants_of(node, names), stem, qparams)
    quantizer = pair.quantize(value, names.node(f"{stem}_q"), names.value(f"{stem}_integers"))
    integers = quantizer.outputs[0]
    graph_of(node).insert_before(node, quantizer)
    feed(
        node,
        WEIGHT,
        pair.dequantize(integers, names.node(f"{stem}_dq"), names.value(f"{stem}_real")),
    )


def _step_of(row: F32) -> float:
    """The largest s with row = s * whole numbers of int8; NaN: there is none."""
    largest = float(np.abs(row).max())
    if largest == 0:
        return 1.0
    multiples = row.astype(np.float64)[None, :] * (np.arange(1, INT8.qmax + 2)[:, None] / largest)
    off = np.abs(multiples - np.rint(multiples)).max(axis=1)
    good = np.flatnonzero(off < _CLOSE)
    return largest / float(good[0] + 1) if good.size else float("nan")
