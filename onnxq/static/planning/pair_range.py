"""The smallest scales of a weight whose integers keep every pair of products within int16.

For neighbours i, j in the order in which products are added, and any uint8 integers beside them:

    255 (max(q_i, 0) + max(q_j, 0)) <=  32767    <=>    the positive ones add up to 128 at most
    255 (min(q_i, 0) + min(q_j, 0)) >= -32768    <=>    the negative ones to -128 at least

Integers never grow with the scale. So the pairs that fit go on to fit; and for each channel, the
smallest float32 scale for which its other pairs fit is found by bisection over those alone.

A weight that gives up range is rounded so that its channels keep their sums with the means of what
they are multiplied by, which wins back the accuracy: see onnxq.targets.bias_preserving.
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.affine import quantize
from onnxq.dtypes import INT8
from onnxq.errors import CalibrationError
from onnxq.graph.weights import constant_array
from onnxq.operator import Rule, Singles
from onnxq.qparams import PerChannel, QParams
from onnxq.static.insertion.decision import weight_of
from onnxq.static.planning.constants import PlannedWeight
from onnxq.targets import Target
from onnxq.targets.bias_preserving import BiasPreservingRounding, InputMeans, leave_int16
from onnxq.targets.reduce_range import ReducedRange, ReduceRange

Saturated = Mapping[str, AbstractSet[int]]
"""Weight (a float initializer) -> channels in which a pair of products left int16."""

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

CHUNK_ELEMENTS = 1 << 22  # weights are looked at in pieces: a model may be larger than the memory


def check_saturated(target: Target, saturated: Saturated | None) -> None:
    """Refuses to guess which channels saturated on samples that are not here."""
    observed = target.reduce_range is ReduceRange.OBSERVED
    if observed and target.reduces_range and saturated is None:
        raise CalibrationError(
            "reduced range 'observed' needs the samples, to run the quantized model on them; "
            "statistics do not say which products saturated. Give the samples to onnxq.quantize "
            "(or `onnxq quantize`), or use 'worst-case'."
        )


def reduced(
    weight: PlannedWeight, node: ir.Node, rule: Rule, target: Target, saturated: Saturated | None
) -> tuple[PlannedWeight, ReducedRange | None]:
    """The weight within what pairs of products can hold on the target, and what that cost."""
    if not target.reduces_range or not rule.saturating_pairs or weight.qparams.dtype != INT8:
        return weight, None
    count = max(weight.qparams.scale.size, 1)
    if weight.integer_limit == target.weight_qmax_saturating:
        factor = target.weight_qmax / target.weight_qmax_saturating
        return weight, ReducedRange(count, count, factor, factor)
    channels = None
    if target.reduce_range is ReduceRange.OBSERVED:
        channels = (saturated or {}).get(weight.tensor, frozenset())
    return fit_pairs(weight, constant_array(weight_of(node, rule)), rule, channels)


def fit_pairs(
    weight: PlannedWeight, array: Singles, rule: Rule, channels: Collection[int] | None = None
) -> tuple[PlannedWeight, ReducedRange | None]:
    """The weight with scales for which its pairs fit int16, and what that cost; None: nothing.

    `rule`: says which of its axis has channels, and which products are neighbours.
    `channels`: whose scales may grow; None: all.
    """
    assert weight.qparams.dtype == INT8
    assert not weight.qparams.zero_point.any()
    if weight.channel_scale is not None:  # as the rewrite writes it
        array = array * np.array(weight.channel_scale, np.float32).reshape(
            -1, *[1] * (array.ndim - 1)
        )
    before = weight.qparams.scale.reshape(-1)
    pairs = list(_pairs_that_leave(weight, array, rule))
    if not pairs:
        return weight, None
    one, other, channel = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    if channels is not None and weight.qparams.scale.ndim:
        kept = np.isin(channel, np.fromiter(channels, np.int64))
        one, other, channel = one[kept], other[kept], channel[kept]
    elif channels is not None and not channels:
        return weight, None
    if not channel.size:
        return weight, None
    after = _smallest(one, other, channel, before, _limit(weight))
    scale = after.reshape(weight.qparams.scale.shape)
    factors = after.astype(np.float64) / before
    reduction = ReducedRange(
        int(np.count_nonzero(after > before)),
        before.size,
        float(factors.max()),
        math.exp(float(np.log(factors).mean())),
    )
    qparams = dataclasses.replace(weight.qparams, scale=scale)
    sums = _bias_preserving(rule, channels if weight.qparams.scale.ndim else None)
    return dataclasses.replace(weight, qparams=qparams, bias_preserving=sums), reduction


def with_means(weight: PlannedWeight, inputs: InputMeans | None) -> PlannedWeight:
    """The weight whose sums, where it keeps any, are those with these means of its inputs."""
    if weight.bias_preserving is None:
        return weight
    sums = dataclasses.replace(weight.bias_preserving, inputs=inputs)
    return dataclasses.replace(weight, bias_preserving=sums)


def _bias_preserving(rule: Rule, channels: Collection[int] | None) -> BiasPreservingRounding | None:
    """Rounding of these channels (None: all); None where the order of products is not known."""
    if not rule.pair_axes:
        return None
    return BiasPreservingRounding(
        rule.pair_axes, None if channels is None else tuple(sorted(channels))
    )


def _limit(weight: PlannedWeight) -> int:
    return INT8.qmax if weight.integer_limit is None else weight.integer_limit


def _pairs_that_leave(
    weight: PlannedWeight, array: Singles, rule: Rule
) -> Iterator[tuple[Singles, Singles, Places]]:
    """(one weight, its neighbour, index of their scale) of pairs whose integers are too large."""
    assert rule.weight is not None
    axis = rule.weight.axis % array.ndim
    order = rule.pair_axes or tuple(a for a in range(array.ndim) if a != axis)
    columns = np.transpose(array, (*order, axis))
    count, inner = columns.shape[-1], math.prod(columns.shape[:-1])
    scale = np.broadcast_to(weight.qparams.scale, count)
    step = max(1, CHUNK_ELEMENTS // max(inner, 1))
    for start in range(0, count, step):
        block = columns[..., start : start + step].reshape(inner, -1)
        even = len(block) // 2 * 2  # an odd last one is alone, and fits
        one, other = (block[:even:2], block[1:even:2]) if rule.pair_axes else _furthest(block)
        wide = np.broadcast_to(scale[start : start + step], one.shape)
        kept = ~_fit(one, other, wide, _limit(weight))
        channel = np.broadcast_to(np.arange(start, start + block.shape[1]), one.shape)[kept]
        per_tensor = not weight.qparams.scale.ndim
        yield one[kept], other[kept], np.zeros_like(channel) if per_tensor else channel


def _furthest(block: Singles) -> tuple[Singles, Singles]:
    """The two largest and the two smallest of each column: any two may be a pair."""
    if len(block) < 2:
        return block[:0], block[:0]
    ordered = np.sort(block, axis=0)
    return ordered[[-1, 0]], ordered[[-2, 1]]


def _fit(one: Singles, other: Singles, scale: Singles, limit: int) -> Mask:
    """Which pairs fit at these scales; all of one shape."""
    first, second = (_integers(x, scale, limit) for x in (one, other))
    return ~leave_int16(first, second)


def _integers(x: Singles, scale: Singles, limit: int) -> npt.NDArray[np.int16]:
    """The integers that the rewrite writes."""
    flat = np.ascontiguousarray(scale).reshape(-1)
    qparams = QParams(flat, np.zeros(flat.shape, np.int8), INT8, PerChannel(0))
    integers = quantize(x.reshape(-1), qparams).reshape(x.shape)
    return np.clip(integers.astype(np.int16), -limit, limit)


def _smallest(
    one: Singles, other: Singles, channel: Places, scale: Singles, limit: int
) -> npt.NDArray[np.float32]:
    """scale, raised where a pair does not fit to the next float32 for which all of them do."""
    used, index = np.unique(channel, return_inverse=True)
    index = index.reshape(-1)

    def fits(bits: npt.NDArray[np.int32]) -> Mask:
        bad = ~_fit(one, other, bits.view(np.float32)[index], limit)
        return np.asarray(np.bincount(index[bad], minlength=used.size) == 0)

    # positive float32 numbers are in the order of their bits
    low = scale[used].astype(np.float32).view(np.int32)
    high = low
    while not (enough := fits(high)).all():
        high = np.where(enough, high, (high.view(np.float32) * np.float32(2)).view(np.int32))
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        enough = fits(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    raised = scale.astype(np.float32).copy()
    raised[used] = high.view(np.float32)
    return raised
