"""qparams of the weights that dynamic quantization stores, in the layout in which it does."""

import dataclasses
from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.dtypes import INT8
from onnxq.dynamic.dynamic_decision import DynamicWeightPlan
from onnxq.dynamic.reasons import TooLargeForHalf, ZeroInHalf
from onnxq.errors import ModelError, QConfigError
from onnxq.graph.prequantized_weights import is_prequantized, qparams_of_weight
from onnxq.graph.walk import value_name
from onnxq.graph.weights import constant_array
from onnxq.observers import LeastErrorObserver, ObserverSpec
from onnxq.observers.weight_observation import WeightKey, observe_weight
from onnxq.operator import DynamicWeight, Float
from onnxq.operator.nodes import input_at, tensor_of
from onnxq.qparams import PerBlock, PerChannel, PerTensor, QParams
from onnxq.qparams.group_ranges import rounded, search_ranges, unshrunk
from onnxq.qparams.group_spec import BITS, GROUP_SIZES, GroupSpec, Scheme
from onnxq.targets.bias_preserving import BiasPreservingRounding

_LAYERS = ("Conv", "Gemm", "MatMul")
PART_ELEMENTS = 1 << 20  # of a weight whose scales are raised together
IMAGE = 4  # rank of the weights of a Conv over images
MATRIX = 2  # rank of the weights that can be stored in blocks
HALF_ZERO = 2.0**-25  # the largest magnitude that rounds to 0 in float16
HALF_NORMAL = float(np.finfo(np.float16).tiny)  # below, float16 has fewer than 11 bits
MANY_LOST, MANY_COARSE = 1e-3, 0.5  # shares of the nonzero numbers; trained layers have fewer
FEW_ROWS = 32
"""Where there may be fewer rows than that, one scale is worth the accuracy that it costs."""
INTEGERS_LEFT = 32
"""Largest integer that every column must keep: -32..32 of -127..127, or of -64..64 on AVX2."""
DEAD = 2.0**-20  # columns of zeros have a scale too, but nothing to lose


@dataclass(frozen=True, slots=True)
class StorageKey:
    """Key to the qparams of a stored weight: nodes that agree in it share one tensor.

    Attributes:
        axis: of its channels; None: it has none.
        block_size: numbers that share a scale; None: no blocks.
        alike: how much the numbers that it multiplies are the same, as `search_ranges` has it.
    """

    tensor: str
    axis: int | None
    block_size: int | None
    observer: ObserverSpec
    alike: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredScales:
    """Scales of a weight, in the float model's layout.

    Attributes:
        raised: what they stand for then; None: the same.
    """

    rounded_in: QParams
    raised: QParams | None = None


def plan_stored(
    value: ir.Value, weight: DynamicWeight, key: StorageKey, limit: int, scales: StoredScales
) -> DynamicWeightPlan:
    """Plan of one weight of a node, stored as integers."""
    rounded_in = permuted(scales.rounded_in, weight.perm)
    has_least = limit == INT8.qmax and is_prequantized(value)  # whose integers may be -128
    raised = scales.raised
    return DynamicWeightPlan(
        weight.slot,
        key.tensor,
        weight.perm,
        rounded_in if raised is None else permuted(raised, weight.perm),
        limit if rounded_in.dtype == INT8 and not has_least else None,
        None if raised is None else rounded_in,
    )


def with_bias_preserving(
    plan: DynamicWeightPlan, node: ir.Node, positive: Container[ir.Value]
) -> DynamicWeightPlan:
    """The plan whose rounding errors cancel in each channel, where its inputs are alike.

    They are where the node's input is positive, and where a channel's weights are those of one
    place in an image and its neighbours (depthwise). Other readers of the weight may have other
    inputs, and integers that the file has stay.
    """
    value, qparams = input_at(node, plan.slot), plan.qparams
    is_alone = len(value.uses()) == 1 and not is_prequantized(value)
    if node.op_type not in _LAYERS or not is_alone:
        return plan
    sizes = tensor_of(value).shape
    is_depthwise = len(sizes) >= IMAGE and sizes[1] == 1
    if input_at(node, 0) not in positive and not is_depthwise:
        return plan
    if qparams is None or qparams.dtype != INT8 or not isinstance(qparams.granularity, PerChannel):
        return plan
    if plan.perm is not None or plan.integer_limit is None or qparams.zero_point.any():
        return plan
    rank = len(tensor_of(value).shape)
    axes = tuple(axis for axis in range(rank) if axis != qparams.granularity.axis % rank)
    return dataclasses.replace(plan, bias_preserving=BiasPreservingRounding(axes))


def with_one_scale(weight: DynamicWeightPlan) -> DynamicWeightPlan:
    """The weight with its largest scale for all columns, or as it is where a column loses too much.

    ONNX Runtime multiplies x_scale by each column's w_scale whenever a MatMul runs, a time per
    column that all rows share: much of a MatMul of a few rows, and little of one of FEW_ROWS and
    more, where a scale per column is nearly always worth it (benchmarks/results/dynamic.md).

    A column whose scale is s keeps integers up to integer_limit * s / max s; errors of rounding
    grow by max s / s. Weights with zero points, blocks, or one scale already stay as they are.
    """
    qparams, limit = weight.qparams, weight.integer_limit
    if qparams is None or limit is None or not isinstance(qparams.granularity, PerChannel):
        return weight
    if qparams.zero_point.any():
        return weight
    share = qparams.scale / qparams.scale.max()
    if share[share > DEAD].min() * limit < INTEGERS_LEFT:
        return weight
    one = QParams(qparams.scale.max(), np.zeros((), np.int64), qparams.dtype, PerTensor())
    return dataclasses.replace(weight, qparams=one)


def check_finite(weights: Iterable[ir.Value]) -> None:
    """Refuses weights that hold NaN or Inf."""
    for value in weights:
        if not np.isfinite(constant_array(value)).all():
            raise ModelError(f"weight '{value.name}' holds NaN or Inf; repair the model.")


def plan_half(
    value: ir.Value, weight: DynamicWeight
) -> tuple[DynamicWeightPlan | Float, list[str]]:
    """One weight stored as float16, or why float16 does not hold it; notes."""
    check_finite([value])
    array = constant_array(value)
    sizes = np.abs(array)
    largest = float(sizes.max(initial=0.0))
    if largest > float(np.finfo(np.float16).max):
        return Float(TooLargeForHalf(value_name(value), largest)), []
    if 0 < largest <= HALF_ZERO:
        return Float(ZeroInHalf(value_name(value), largest)), []
    plan = DynamicWeightPlan(weight.slot, value_name(value), weight.perm, None)
    return plan, _notes_on_small(value, sizes)


def _notes_on_small(value: ir.Value, sizes: npt.NDArray[np.float32]) -> list[str]:
    """One note where so many magnitudes are too small for float16 that results may suffer."""
    nonzero = max(int(np.count_nonzero(sizes)), 1)
    zeros = sizes.size - int(np.count_nonzero(sizes))
    lost = (int(np.count_nonzero(sizes <= HALF_ZERO)) - zeros) / nonzero
    coarse = (int(np.count_nonzero(sizes < HALF_NORMAL)) - zeros) / nonzero
    if lost < MANY_LOST and coarse < MANY_COARSE:
        return []
    return [
        f"weight '{value.name}' in float16: {lost:.2%} of its nonzero numbers become 0 (magnitudes "
        f"up to 2^-25), {coarse - lost:.2%} more lose precision (below 2^-14). Give its node int8 "
        "weights, or scale the model."
    ]


def stored_scales(value: ir.Value, key: StorageKey, limit: int) -> tuple[StoredScales, list[str]]:
    """Scales of the key's weight; notes. Blocks have those of quantize-weights' method rtn.

    Integers that the file has are taken over where they fit.
    """
    if is_prequantized(value) and key.block_size is None and key.axis is not None:
        named = WeightKey(key.tensor, key.axis, limit, key.observer)
        qparams, notes = qparams_of_weight(value, named)
        return StoredScales(qparams), notes
    array = constant_array(value)
    qparams, notes = observe_stored(array, key, limit)
    spec = None if key.block_size is None else searched_as(key.observer, key.block_size)
    raised = None if spec is None else _raised(array, spec, qparams)
    return StoredScales(qparams, raised), notes


def _raised(array: npt.NDArray[np.float32], spec: GroupSpec, qparams: QParams) -> QParams:
    """The qparams with scales raised as `unshrunk` has it, some rows at a time."""
    assert isinstance(qparams.granularity, PerBlock)
    turned = qparams.granularity.axis == 0
    scale = qparams.scale.T if turned else qparams.scale
    zero = qparams.zero_point.T if turned else qparams.zero_point
    rows = array.T if turned else array
    point = (zero.astype(np.int16) - qparams.dtype.qmin).astype(np.uint8)
    raised = np.empty_like(scale, order="C")
    step = max(1, PART_ELEMENTS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        some = np.ascontiguousarray(rows[part], np.float32)
        integers = rounded(some, spec, scale[part], point[part])
        raised[part] = unshrunk(some, integers).scale
    return dataclasses.replace(qparams, scale=raised.T if turned else raised)


def observe_stored(
    array: npt.NDArray[np.float32], key: StorageKey, limit: int
) -> tuple[QParams, list[str]]:
    """QParams of the key's weight, in the float model's layout; notes."""
    if key.block_size is not None:
        return _observe_blocks(array, key, key.block_size, limit)
    axis = 0 if key.axis is None else key.axis % array.ndim
    rows = array.reshape(1, -1) if key.axis is None else array
    named = WeightKey(key.tensor, axis, limit, key.observer)
    qparams, notes = observe_weight(rows, named)
    if key.axis is not None or isinstance(qparams.granularity, PerTensor):
        return qparams, notes
    scale, zero_point = qparams.scale.reshape(()), qparams.zero_point.reshape(())
    return QParams(scale, zero_point, qparams.dtype, PerTensor()), notes


def _observe_blocks(
    array: npt.NDArray[np.float32], key: StorageKey, size: int, limit: int
) -> tuple[QParams, list[str]]:
    """One scale per `size` elements of the axis that is summed over: the other one of a matrix.

    The blocks are what the observer sees as channels; the last one is filled up with zeros.
    """
    assert array.ndim == MATRIX
    assert key.axis is not None
    columns = np.moveaxis(array, key.axis, -1)  # (summed, columns)
    length, count = columns.shape
    blocks = -(-length // size)
    summed = 1 - key.axis % MATRIX
    if spec := searched_as(key.observer, size):
        return _searched(columns, key, spec, summed), []
    padded = np.zeros((blocks * size, count), np.float32)
    padded[:length] = columns
    rows = np.moveaxis(padded.reshape(blocks, size, count), 1, 2).reshape(blocks * count, size)
    qparams, notes = observe_weight(rows, WeightKey(key.tensor, 0, limit, key.observer))
    if not qparams.scale.ndim:
        raise QConfigError(
            f"weight '{key.tensor}': {key.observer.name} gives one scale for the whole tensor, and "
            f"precision 'weight_only_groupwise' wants one per block of {size}. Name an observer "
            "with a scale per channel, such as LeastErrorObserver or NarrowRangeObserver; or use "
            "`onnxq quantize-weights`."
        )
    scale = qparams.scale.reshape(blocks, count)
    zero_point = qparams.zero_point.reshape(blocks, count)
    if summed:
        scale, zero_point = scale.T, zero_point.T
    return QParams(scale, zero_point, qparams.dtype, PerBlock(summed, size)), notes


def searched_as(observer: ObserverSpec, size: int) -> GroupSpec | None:
    """Precision of blocks whose ranges are searched as those of quantize-weights; None: none.

    They are the same where the observer looks for the least error over all integers.
    """
    seen = observer()
    is_whole = (seen.quant_min, seen.quant_max) == (seen.dtype.qmin, seen.dtype.qmax)
    if not isinstance(seen, LeastErrorObserver) or not is_whole or size not in GROUP_SIZES:
        return None
    scheme = Scheme.SYMMETRIC if seen.qscheme.symmetric else Scheme.AFFINE
    bits = seen.dtype.bits
    return GroupSpec(bits, size, scheme, signed=False) if bits in BITS else None


def _searched(
    columns: npt.NDArray[np.float32], key: StorageKey, spec: GroupSpec, summed: int
) -> QParams:
    """QParams of columns (summed, columns), the numbers of each block together."""
    if not np.isfinite(columns).all():
        raise ModelError(f"weight '{key.tensor}' holds NaN or Inf; repair the model.")
    scale, point = search_ranges(np.ascontiguousarray(columns.T), spec, alike=key.alike)
    dtype = key.observer().dtype
    zero_point = (point.astype(np.int16) + dtype.qmin).astype(dtype.storage)
    if not summed:
        scale, zero_point = scale.T, zero_point.T
    return QParams(scale, zero_point, dtype, PerBlock(summed, spec.group_size))


def permuted(qparams: QParams, perm: tuple[int, ...] | None) -> QParams:
    """The qparams of np.transpose(integers, perm)."""
    if perm is None or isinstance(qparams.granularity, PerTensor):
        return qparams
    if isinstance(qparams.granularity, PerChannel):
        axis = perm.index(qparams.granularity.axis % len(perm))
        return dataclasses.replace(qparams, granularity=PerChannel(axis))
    axis = perm.index(qparams.granularity.axis % len(perm))
    return dataclasses.replace(
        qparams,
        scale=np.transpose(qparams.scale, perm),
        zero_point=np.transpose(qparams.zero_point, perm),
        granularity=PerBlock(axis, qparams.granularity.size),
    )


def unpermuted(qparams: QParams, perm: tuple[int, ...] | None) -> QParams:
    """The qparams of integers, from those of np.transpose(integers, perm)."""
    if perm is None:
        return qparams
    return permuted(qparams, tuple(perm.index(axis) for axis in range(len(perm))))


def can_turn(qparams: QParams | None) -> bool:
    """Whether a Transpose may stand between what is stored and what a lowering reads.

    Integers in blocks are packed, by the lowering of some operators in their own way.
    """
    return qparams is None or not isinstance(qparams.granularity, PerBlock)


def can_be_groupwise(value: ir.Value, weight: DynamicWeight) -> bool:
    """Whether the weight is a matrix with channels, whose other axis can be cut into blocks."""
    shape = value.shape
    return weight.axis is not None and shape is not None and len(shape) == MATRIX
