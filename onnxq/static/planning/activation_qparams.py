"""qparams of activations, out of what calibration saw; and what it did not see.

Ranges ahead of functions that amplify large values, wider than that of least squared error.

    noise of a range = noise / signal of the tensor + noise / signal behind each of the functions

Min and max go from those of least squared error towards the smallest and largest value. Of the
ranges whose noise is nearly the least, the first is taken, so that nothing changes where no
function asks for it.
"""

import functools
import itertools
from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from onnxq.affine import dequantize, integer_bounds, quantize
from onnxq.core.arrays import Reals
from onnxq.core.reason import Reason
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.walk import IF, node_name, walk
from onnxq.graph.weights import constant_array
from onnxq.observers import HistogramObserver, NoopObserver, Observer
from onnxq.observers.value_range import EPS
from onnxq.qparams import MIN_SCALE, QParams, per_tensor, stored_as
from onnxq.static.insertion.groups import TensorGroup, as_observed, with_stand_ins
from onnxq.static.noise.curves_behind import CurveBehind, curves_behind
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import NeverObserved, NoScaleComputed, TensorNotFinite
from onnxq.static.statistics import Statistics

NEARLY_ALL = 0.95  # share of the integers in use, from which on the others are not meant
NEARLY = 1.05
"""Noise over the least that is as good: the most that the search of least squared error allows."""
_WAY = np.linspace(0.0, 1.0, 9)  # from the end of least squared error, 0, to the whole range, 1


def tensor_qparams(
    prepared: Prepared, statistics: Statistics
) -> tuple[dict[str, QParams], dict[str, Reason], list[str]]:
    """(tensor -> qparams, tensor -> why it has none, notes)."""
    tensors: dict[str, QParams] = {}
    unseen: dict[str, Reason] = {}
    notes: list[str] = []
    constants = {
        name: value
        for graph in prepared.model.graphs()
        for name, value in graph.initializers.items()
    }
    bounds = _bounds(prepared, statistics)
    curves = curves_behind(prepared.context, statistics.probed)
    for group in _known(prepared, statistics):
        reason = _why_unknown(group, statistics, bounds)
        if reason:
            unseen.update(dict.fromkeys(group.members, reason))
            continue
        interval = _interval(group, bounds)
        if interval is not None:
            qparams = qparams_of_range(interval, group.observer().dtype)
        else:
            observer = _merged(group, constants, statistics, bounds)
            behind = dict.fromkeys(each for t in group.members for each in curves.get(t, ()))
            qparams = with_curves(observer, observer.calculate_qparams(), behind)
            notes += _notes_on_least_scale(observer, qparams, group)
        if len(group.members) == 1 and group.members[0] in prepared.clamps:
            qparams = _fitted(qparams, prepared.clamps[group.members[0]])
        tensors.update(dict.fromkeys(group.members, stored_as(qparams, group.dtype)))
    return tensors, unseen, notes


def _known(prepared: Prepared, statistics: Statistics) -> tuple[TensorGroup, ...]:
    """The groups, by what was observed of them.

    Statistics of all integers, or of an earlier version, lack what only the chosen precisions read.
    """
    found = with_stand_ins(prepared.groups, statistics.observers, prepared.in_integers)
    return as_observed(found, prepared.observed)


def _bounds(prepared: Prepared, statistics: Statistics) -> dict[str, tuple[float, float]]:
    """Tensor -> interval that holds it whatever the input is, of those that nobody observed.

    With every node in integers, such a tensor needs no observer; where its node became float,
    integers of it begin elsewhere, perhaps in a group with others.
    """
    return {
        source: group.range
        for group in prepared.in_integers
        if group.range is not None
        for source in group.observed
        if source not in statistics.observers
    }


def _interval(
    group: TensorGroup, bounds: Mapping[str, tuple[float, float]]
) -> tuple[float, float] | None:
    """The interval that holds the whole group whatever the input is; None: not all are so bound."""
    found = {bounds.get(source) for source in group.observed}
    return group.range if group.constants or len(found) != 1 else found.pop() or group.range


def _why_unknown(
    group: TensorGroup, statistics: Statistics, bounds: Mapping[str, tuple[float, float]]
) -> Reason | None:
    """Why the group has no qparams, or None."""
    tensor = group.members[0]
    if group.observer.name == NoopObserver.__name__:
        return NoScaleComputed(tensor, str(group.observer))
    for source in group.observed:
        if source in statistics.not_finite:
            return TensorNotFinite(source, str(statistics.not_finite[source]))
    known = group.range is not None or group.constants or bounds.keys() & set(group.observed)
    if known or any(statistics.counts.get(source, 0) for source in group.observed):
        return None
    for source in group.observed:
        statistics.observer(source, group.observer)  # statistics that lack it are an error
    return NeverObserved(tensor)


def _merged(
    group: TensorGroup,
    constants: Mapping[str, ir.Value],
    statistics: Statistics,
    bounds: Mapping[str, tuple[float, float]],
) -> Observer:
    """One observer that has seen every source and constant of the group, or their bounds."""
    observers = []
    for source in group.observed:
        if source in bounds:
            observer = group.observer()
            observer.observe(np.array(bounds[source], np.float32), 0)
            observers.append(observer)
        else:
            observers.append(statistics.observer(source, group.observer))
    for name in group.constants:
        observer = group.observer()
        try:
            observer.observe(constant_array(constants[name]), 0)
        except CalibrationError as error:
            raise ModelError(
                f"constant '{name}': {error} Leave it float in the qconfig "
                f"(tensors: {{{name}: null}}), or repair the model."
            ) from error
        observers.append(observer)
    return functools.reduce(lambda a, b: a.merge(b), observers)


def _notes_on_least_scale(observer: Observer, qparams: QParams, group: TensorGroup) -> list[str]:
    """One note where the observer's smallest scale, not the data, decided.

    Values that are all 0 say nothing of the scale: observers then give EPS or their larger floor.
    """
    if qparams.scale.ndim or not observer.spec.accepts("eps"):
        return []
    floor = np.float32(observer.eps)
    if qparams.scale > max(floor, np.float32(EPS)):
        return []
    if _saw_only_zeros(observer):
        return [
            f"tensor '{group.members[0]}' was 0 in every sample: its scale is a guess, and other "
            "values will be cut off near 0. Check the samples and the model, or leave the tensor "
            "float."
        ]
    if qparams.scale > floor:
        return []
    finer = observer.spec.with_args(eps=float(MIN_SCALE)).restore(observer.state())
    if finer.calculate_qparams().scale >= floor:
        return []
    return [
        f"tensor '{group.members[0]}': its values are so small that the observer's smallest "
        f"scale, eps = {observer.eps:.3g}, leaves them few integers or none. Give its observer a "
        "smaller eps, or leave the tensor float."
    ]


def _saw_only_zeros(observer: Observer) -> bool:
    """Whether the observer keeps the ends of its data, and both are 0."""
    state = observer.state()
    min_max = [state[key] for key in ("min", "max") if key in state]
    return len(min_max) == 2 and all(x.size > 0 and not x.any() for x in min_max)


def _fitted(qparams: QParams, clamp: tuple[float, float]) -> QParams:
    """The qparams with the last integer at the Clip's upper bound, where it lies a little beyond.

    A histogram's end may do so by a fraction of a bin. The integers above the bound would never be
    used, and would need a Clip of their own.
    """
    dtype = qparams.dtype
    low, high = integer_bounds(clamp, qparams)
    nearly = dtype.qmin + NEARLY_ALL * (dtype.qmax - dtype.qmin)
    if low != int(qparams.zero_point) or low != dtype.qmin or not nearly <= high < dtype.qmax:
        return qparams
    return per_tensor(clamp[1] / (dtype.qmax - dtype.qmin), dtype.qmin, dtype)


def qparams_of_range(interval: tuple[float, float], dtype: QDType) -> QParams:
    """QParams whose first integer is `low` and whose last one is `high`."""
    low, high = interval
    scale = (high - low) / (dtype.qmax - dtype.qmin)
    return per_tensor(scale, dtype.qmin - round(low / scale), dtype)


UNSEEN_BEHIND = "so that ranges behind the If are those of the other branch"


def untaken_branches(prepared: Prepared, statistics: Statistics) -> list[str]:
    """A note for every branch of an If that, as far as its tensors tell, no sample took.

    Nothing is observed in a branch that is all float; then all batches were in the other one.
    """
    notes = []
    for node, _ in walk(prepared.model.graph):
        if node.op_type != IF:
            continue
        reached = {
            kind: _reached(attribute.as_graph(), prepared, statistics)
            for kind, attribute in node.attributes.items()
        }
        always = any(count == len(statistics.batches) for count in reached.values())
        for kind, count in reached.items():
            if count or (count is None and not always):
                continue
            what = UNSEEN_BEHIND if count is None else "which stays in float"
            notes.append(
                f"If '{node_name(node)}': no sample took its {kind}, {what}. Add samples that take "
                "it."
            )
    return notes


def _reached(branch: ir.Graph, prepared: Prepared, statistics: Statistics) -> int | None:
    """Batches that reached the branch, at least; None: nothing is observed in it."""
    observed = prepared.observed
    inside = {v.name for n, _ in walk(branch) for v in n.outputs} & observed.keys()
    return max((statistics.counts.get(str(name), 0) for name in inside), default=None)


def with_curves(observer: Observer, qparams: QParams, curves: Collection[CurveBehind]) -> QParams:
    """The qparams, or those of a wider range where the functions behind the tensor gain by it.

    Args:
        observer: of the tensor; only one that searches the least squared error leaves values out
            that nobody asked it to.
        qparams: what it gives.
        curves: functions that read the tensor's elements.
    """
    if not curves or type(observer) is not HistogramObserver or not qparams.scale > 0:
        return qparams
    candidates = [qparams, *_wider(observer, qparams)]
    if len(candidates) == 1:
        return qparams
    x, counts = observer.occupied()
    singles = x.astype(np.float32)
    rounded: Reals = np.stack(
        [
            dequantize(quantize(singles, candidate), candidate).astype(np.float64)
            for candidate in candidates
        ]
    )
    own = np.square(rounded - x) @ counts / max(float(counts @ np.square(x)), 1e-300)
    noise = sum((curve.noises(x, counts, rounded) for curve in curves), own)
    return candidates[int(np.flatnonzero(noise <= NEARLY * noise.min())[0])]


def _wider(observer: HistogramObserver, qparams: QParams) -> list[QParams]:
    """Ranges from that of qparams to the observed one, narrow ones first.

    Integers are those that the observer may use.
    """
    integers, scale, zero = observer.range, float(qparams.scale), int(qparams.zero_point)
    low, high = (integers.quant_min - zero) * scale, (integers.quant_max - zero) * scale
    least, most = float(observer.histogram.minimum), float(observer.histogram.maximum)
    lows = [low] if least >= low else list(low + (least - low) * _WAY)
    highs = [high] if most <= high else list(high + (most - high) * _WAY)
    ways = itertools.product(enumerate(lows), enumerate(highs))
    ordered = sorted(ways, key=lambda way: way[0][0] + way[1][0])
    return [integers.qparams(each_low, each_high) for (_, each_low), (_, each_high) in ordered[1:]]
