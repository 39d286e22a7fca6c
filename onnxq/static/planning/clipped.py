"""Scales of what a Clip gives where others read its input too: the input's, or one of its own.

    on the input's scale  each bound b becomes its nearest integer c(b): error (b - c(b))^2 on the
                          share of the values that lie at b, always of the same sign
    on a scale of its own every value is rounded once more, and the integers are converted

What lies between the bounds has been rounded with the input already. So the bounds alone decide:
the Clip shares its input's scale, and is a Clip on integers, where that costs no more than a
rounding. A Relu always does, as 0 is an integer of every scale.
"""

from collections.abc import Mapping

import numpy as np

from onnxq.affine import dequantize, quantize
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import HistogramObserver, Observer
from onnxq.observers.qparams_search import Moments
from onnxq.observers.tensor_noise import predicted_noise
from onnxq.operator.nodes import input_at
from onnxq.qparams import QParams
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.prepared import Prepared
from onnxq.static.statistics import Statistics


def with_shared_qparams(
    prepared: Prepared,
    decisions: Mapping[str, Decision],
    statistics: Statistics,
    tensors: Mapping[str, QParams],
) -> dict[str, QParams]:
    """`tensors`, with the input's qparams for what a Clip gives where these hold its bounds."""
    found = dict(tensors)
    groups = {member: group for group in prepared.groups for member in group.members}
    for node, _ in walk(prepared.model.graph):
        decision = decisions[node_name(node)]
        if not isinstance(decision, Quantize) or decision.rule.clamp is None:
            continue
        if decision.folded_into or not decision.results:
            continue
        read, given = value_name(input_at(node, 0)), decision.results[0]
        group = groups[given]
        if given in groups[read].members or group.constants or len(group.observed) > 1:
            continue
        observer = statistics.observers.get(group.observed[0])
        if observer is None or found[read].dtype != found[given].dtype:
            continue
        if _cost_of_bounds(decision.rule.clamp, observer, found[read]) <= _noise(
            observer, found[given]
        ):
            found.update(dict.fromkeys(group.members, found[read]))
    return found


def _noise(observer: Observer, qparams: QParams) -> float:
    """Mean squared error of the tensor with qparams of its own."""
    noise = predicted_noise(observer, qparams)
    return 0.0 if noise is None else noise.power


def _cost_of_bounds(clamp: tuple[float, float], observer: Observer, qparams: QParams) -> float:
    """Mean squared error that integers near the bounds, in place of the bounds, make."""
    bounds = np.array(clamp, np.float32)
    finite = np.isfinite(bounds)
    errors = dequantize(quantize(bounds[finite], qparams), qparams) - bounds[finite]
    shares = np.array([_share_at(observer, i) for i in range(2)])[finite]
    return float((shares * np.square(errors.astype(np.float64))).sum())


def _share_at(observer: Observer, end: int) -> float:
    """Share of the values at the lower (0) or upper (1) end, to a bin; 1 where it is not known."""
    if not isinstance(observer, HistogramObserver):
        return 1.0
    histogram = observer.histogram
    moments = Moments(histogram)
    low, high = histogram.minimum / histogram.width, histogram.maximum / histogram.width
    inside = np.array([low + 1, high - 1])
    below = moments.below(inside)[0] / max(moments.total, 1)
    return float(below[0] if end == 0 else 1 - below[1])
