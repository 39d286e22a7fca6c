"""Ranges ahead of functions that amplify large values, wider than that of least squared error.

    noise of a range = noise / signal of the tensor + noise / signal behind each of the functions

Min and max go from those of least squared error towards the smallest and largest value. Of the
ranges whose noise is nearly the least, the first is taken, so that nothing changes where no
function asks for it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from onnxq.affine import dequantize, quantize
from onnxq.observers import HistogramObserver

if TYPE_CHECKING:
    from collections.abc import Collection

    from onnxq.core.arrays import Reals
    from onnxq.observers import Observer
    from onnxq.qparams import QParams
    from onnxq.static.noise.curves_behind import CurveBehind

NEARLY = 1.05
"""Noise over the least that is as good: the most that the search of least squared error allows."""
_WAY = np.linspace(0.0, 1.0, 9)  # from the end of least squared error, 0, to the whole range, 1


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
    all_qparams = [qparams, *_wider(observer, qparams)]
    if len(all_qparams) == 1:
        return qparams
    x, counts = observer.occupied()
    singles = x.astype(np.float32)
    rounded: Reals = np.stack(
        [
            dequantize(quantize(singles, graph_qparams), graph_qparams).astype(np.float64)
            for graph_qparams in all_qparams
        ]
    )
    own = np.square(rounded - x) @ counts / max(float(counts @ np.square(x)), 1e-300)
    noise = sum((curve.noises(x, counts, rounded) for curve in curves), own)
    return all_qparams[int(np.flatnonzero(noise <= NEARLY * noise.min())[0])]


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
