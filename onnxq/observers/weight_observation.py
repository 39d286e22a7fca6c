"""Finds qparams of a weight, its integers within a limit."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.affine import quantize
from onnxq.dtypes import INT8
from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.observers import Observer, ObserverSpec
from onnxq.qparams import PerChannel, QParams

CHUNK_ELEMENTS = 1 << 22  # weights are looked at in pieces: a model may be larger than the memory


@dataclass(frozen=True, slots=True)
class WeightKey:
    """Key to the integers of a weight: nodes that agree in it share one integer tensor."""

    tensor: str
    axis: int
    limit: int
    observer: ObserverSpec


def observe_weight(weight: npt.NDArray[np.float32], key: WeightKey) -> tuple[QParams, list[str]]:
    """QParams by the key's observer of the weight, its range cut to the key's limit; notes."""
    observer = limited_to(key.observer, key.limit, key.axis % weight.ndim)()
    try:
        observer.observe(weight, 0)
    except CalibrationError as error:
        if not np.isfinite(weight).all():
            raise ModelError(
                f"weight '{key.tensor}' holds NaN or Inf; repair the model."
            ) from error
        raise ModelError(f"weight '{key.tensor}': {error}") from error
    qparams = observer.calculate_qparams()
    # a symmetric range inside the limit gives integers inside it; others are counted
    inside = -key.limit <= observer.quant_min and observer.quant_max <= key.limit
    counted = qparams.dtype == INT8 and not (observer.qscheme.symmetric and inside)
    notes = notes_on_integers_outside(weight, qparams, key) if counted else []
    return qparams, notes + _notes_on_least_scale(weight, qparams, key, observer)


def limited_to(spec: ObserverSpec, limit: int, ch_axis: int) -> ObserverSpec:
    """The observer of a weight whose int8 integers are to lie in [-limit, limit]."""
    probe = spec()
    if probe.qscheme.per_channel:
        spec = spec.with_args(ch_axis=ch_axis)
    if probe.dtype == INT8 and limit < INT8.qmax and spec.accepts("quant_max"):
        spec = _limited(spec, probe, limit)
    return spec


def _notes_on_least_scale(
    weight: npt.NDArray[np.float32], qparams: QParams, key: WeightKey, observer: Observer
) -> list[str]:
    """One note where the observer's least scale costs a weight a bit, or all of its integers."""
    scale = float(qparams.scale.max(initial=0.0))
    if scale > observer.eps:
        return []
    largest = max(float(weight.max(initial=0.0)), -float(weight.min(initial=0.0)))
    half = (observer.quant_max - observer.quant_min) / 2
    if not 0 < largest / scale < half / 2:
        return []
    return [
        f"weight '{key.tensor}': its magnitudes, up to {largest:g}, are small beside the least "
        f"scale of {key.observer.name}, {scale:g}: integers reach {np.rint(largest / scale):g} of "
        f"{int(half)}. Use NarrowRangeObserver, or a smaller eps."
    ]


def _limited(spec: ObserverSpec, observer: Observer, limit: int) -> ObserverSpec:
    """The spec with the part of its own range that lies within the limit; as it is if all does."""
    low, high = max(observer.quant_min, -limit), min(observer.quant_max, limit)
    if (low, high) == (observer.quant_min, observer.quant_max):
        return spec
    spec = spec.with_args(quant_max=high)
    spec = spec.with_args(quant_min=low) if spec.accepts("quant_min") else spec
    # what the observer says of its range is halved already
    return spec.with_args(reduce_range=False) if spec.accepts("reduce_range") else spec


def notes_on_integers_outside(
    weight: npt.NDArray[np.float32], qparams: QParams, key: WeightKey
) -> list[str]:
    """One note on int8 integers outside the key's limit, if there are any."""
    outside = sum(
        int(np.count_nonzero(np.abs(quantize(piece, p).astype(np.int16)) > key.limit))
        for piece, p in _pieces(weight, qparams)
    )
    if not outside:
        return []
    if key.limit < INT8.qmax:
        raise QConfigError(
            f"weight '{key.tensor}': {key.observer.name} gives {outside} integers outside "
            f"[-{key.limit}, {key.limit}], which the target does not run exactly. Use a symmetric "
            "observer with quant_max, reduce_range=True, or a target such as 'x86-vnni'."
        )
    return [
        f"weight '{key.tensor}': {outside} of {weight.size} integers of -128 were clipped to -127; "
        "sums with -128 wrap on ARM"
    ]


def _pieces(
    weight: npt.NDArray[np.float32], qparams: QParams
) -> Iterator[tuple[npt.NDArray[np.float32], QParams]]:
    """The weight in pieces along its first axis, each with the qparams of its channels."""
    if weight.size <= CHUNK_ELEMENTS or weight.ndim == 0:
        yield weight, qparams
        return
    rows = max(1, CHUNK_ELEMENTS // max(1, weight[0].size))
    for start in range(0, len(weight), rows):
        piece_qparams = qparams
        if qparams.granularity == PerChannel(0):
            piece_qparams = dataclasses.replace(
                qparams,
                scale=qparams.scale[start : start + rows],
                zero_point=qparams.zero_point[start : start + rows],
            )
        yield weight[start : start + rows], piece_qparams
