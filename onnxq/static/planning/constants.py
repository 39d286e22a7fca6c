"""qparams of constants: the weight and the bias of a node."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onnxq.dtypes import INT8, INT32
from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.qparams import (
    MIN_SCALE,
    PerChannel,
    PerTensor,
    QParams,
    quantize,
    raised_scale,
    sum_scale,
)
from onnxq.static.placing.decision import weight_observer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir

    from onnxq.observers import Observer, ObserverSpec
    from onnxq.operator import Rule
    from onnxq.static.prepare import Prepared

CHUNK_ELEMENTS = 1 << 22  # weights are looked at in pieces: a model may be larger than the memory


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """How one node's weight is stored.

    Attributes:
        tensor: name of the float initializer.
        qparams: of the codes.
        code_limit: codes are clipped to [-code_limit, code_limit]; None: the type's own range.
        gain: one factor per row that the float weight is multiplied by first; None: none.
    """

    tensor: str
    qparams: QParams
    code_limit: int | None
    gain: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold."""
        return {
            "tensor": self.tensor,
            "qparams": self.qparams.to_dict(),
            "code_limit": self.code_limit,
            "gain": self.gain,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WeightPlan:
        """The inverse of to_dict."""
        qparams = QParams.from_dict(data["qparams"])
        return cls(data["tensor"], qparams, data["code_limit"], _gain(data["gain"]))


@dataclass(frozen=True, slots=True)
class BiasPlan:
    """int32 codes of a bias at x_scale * w_scale, zero point 0.

    Attributes:
        tensor: name of the float initializer.
        qparams: of the codes.
        gain: one factor per channel that the float bias is multiplied by first; None: none.
    """

    tensor: str
    qparams: QParams
    gain: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold."""
        return {"tensor": self.tensor, "qparams": self.qparams.to_dict(), "gain": self.gain}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BiasPlan:
        """The inverse of to_dict."""
        return cls(data["tensor"], QParams.from_dict(data["qparams"]), _gain(data["gain"]))


def _gain(data: list[float] | None) -> tuple[float, ...] | None:
    return None if data is None else tuple(data)


@dataclass(frozen=True, slots=True)
class WeightKey:
    """What makes the codes of a weight: nodes that agree in it share one integer tensor."""

    tensor: str
    axis: int
    limit: int
    observer: ObserverSpec


def plan_weight(
    prepared: Prepared,
    node: ir.Node,
    rule: Rule,
    observed: dict[WeightKey, QParams],
    notes: list[str],
) -> WeightPlan:
    """The weight of one node: its observer's scale, within the codes that the target runs exactly.

    Args:
        prepared: target and qconfig are read.
        node: the float node.
        rule: its operator's.
        observed: qparams of the weights seen so far; grows.
        notes: what a user should know; grows.

    Raises:
        ModelError: the weight holds NaN or Inf.
        QConfigError: the observer gives codes that the target cannot run exactly.
    """
    assert rule.weight is not None
    value = node.inputs[rule.weight.slot]
    assert value is not None
    assert value.name
    spec = weight_observer(node, rule, prepared.qconfig)
    limit = prepared.target.weight_limit(rule)
    if not spec().qscheme.symmetric and rule.saturating_pairs:
        # a larger scale moves codes towards the zero point, which may itself be too large
        limit = prepared.target.weight_qmax_saturating
    key = WeightKey(value.name, rule.weight.axis, limit, spec)
    if key not in observed:
        observed[key] = observe_weight(constant_array(value), key, notes)
    qparams = observed[key]
    return WeightPlan(value.name, qparams, limit if qparams.dtype == INT8 else None)


def with_gain(
    weight: WeightPlan,
    made: npt.NDArray[np.float32] | None,
    read: npt.NDArray[np.float32] | None,
) -> WeightPlan:
    """The weight whose row o is multiplied by made[o] / read[channel that row o sees].

    The scales take the factors, so that the codes stay the same.

    Args:
        weight: with a scale per row.
        made: float32 (rows,), gains of the node's result; None: none.
        read: float32 (channels,), gains of its input, channels a divisor of rows; None: none.
    """
    rows = weight.qparams.scale.size
    gain = np.ones(rows, np.float32) if made is None else made
    if read is not None:
        gain = np.divide(gain, np.repeat(read, rows // read.size), dtype=np.float32)
    scale = np.maximum(weight.qparams.scale * gain, MIN_SCALE)
    qparams = dataclasses.replace(weight.qparams, scale=scale)
    return dataclasses.replace(weight, qparams=qparams, gain=tuple(gain.tolist()))


def observe_weight(weight: npt.NDArray[np.float32], key: WeightKey, notes: list[str]) -> QParams:
    """What the key's observer says of the weight, its range cut to the key's limit.

    Args:
        weight: float32; weight.shape[key.axis] channels where the observer has some.
        key: names the tensor, its channel axis, the code limit and the observer.
        notes: what a user should know; grows.

    Raises:
        ModelError: the weight holds NaN or Inf.
        QConfigError: the observer gives codes that the target cannot run exactly.
    """
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
    # a symmetric range inside the limit gives codes inside it; others are counted
    inside = -key.limit <= observer.quant_min and observer.quant_max <= key.limit
    if qparams.dtype == INT8 and not (observer.qscheme.symmetric and inside):
        _check_codes(weight, qparams, key, notes)
    notes += _notes_on_least_scale(weight, qparams, key, observer)
    return qparams


def limited_to(spec: ObserverSpec, limit: int, ch_axis: int) -> ObserverSpec:
    """The observer of a weight whose int8 codes are to lie in [-limit, limit].

    Args:
        spec: as the qconfig has it.
        limit: the target's.
        ch_axis: axis of the channels, where the observer has some.
    """
    probe = spec()
    if probe.qscheme.per_channel:
        spec = spec.with_args(ch_axis=ch_axis)
    if probe.dtype == INT8 and limit < INT8.qmax and spec.accepts("quant_max"):
        spec = _limited(spec, probe, limit)
    return spec


def _notes_on_least_scale(
    weight: npt.NDArray[np.float32], qparams: QParams, key: WeightKey, observer: Observer
) -> list[str]:
    """One note where the observer's least scale costs a weight a bit of its codes, or all of them.

    Torch's is 2^-23, whatever the weights: a tensor of 1e-8 has no code but 0.
    """
    scale = float(qparams.scale.max(initial=0.0))
    if scale > observer.eps:
        return []
    largest = max(float(weight.max(initial=0.0)), -float(weight.min(initial=0.0)))
    half = (observer.quant_max - observer.quant_min) / 2
    if not 0 < largest / scale < half / 2:
        return []
    return [
        f"weight '{key.tensor}': its magnitudes, up to {largest:g}, are small beside the least "
        f"scale of {key.observer.name}, {scale:g}: codes reach {np.rint(largest / scale):g} of "
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


def _check_codes(
    weight: npt.NDArray[np.float32], qparams: QParams, key: WeightKey, notes: list[str]
) -> None:
    """Counts codes outside the limit: noted at 127, refused where products would saturate."""
    outside = sum(
        int(np.count_nonzero(np.abs(quantize(piece, p).astype(np.int16)) > key.limit))
        for piece, p in _pieces(weight, qparams)
    )
    if not outside:
        return
    if key.limit < INT8.qmax:
        raise QConfigError(
            f"weight '{key.tensor}': {key.observer.name} gives {outside} codes outside "
            f"[-{key.limit}, {key.limit}], which the target does not run exactly. Use a symmetric "
            "observer with quant_max, reduce_range=True, or a target such as 'x86-vnni'."
        )
    notes.append(
        f"weight '{key.tensor}': {outside} of {weight.size} codes of -128 were clipped to -127; "
        "sums with -128 wrap on ARM"
    )


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


def plan_bias(
    node: ir.Node,
    rule: Rule,
    x: QParams,
    weight: WeightPlan,
    notes: list[str],
    made: npt.NDArray[np.float32] | None = None,
) -> tuple[WeightPlan, BiasPlan]:
    """The bias at x_scale * w_scale; raises w_scale of channels whose bias would leave int32.

    Args:
        node: the float node.
        rule: its operator's.
        x: of the input.
        weight: with its gain, if it has one.
        notes: what a user should know; grows.
        made: float32 (channels,), gains of the node's result; None: none.

    Raises:
        ModelError: the bias holds NaN or Inf.
    """
    assert rule.bias is not None
    value = node.inputs[rule.bias]
    assert value is not None
    assert value.name
    bias = constant_array(value).astype(np.float64)
    if not np.isfinite(bias).all():
        raise ModelError(
            f"bias '{value.name}' of '{node.name}' holds NaN or Inf; repair the model."
        )
    if made is not None:
        bias = bias * made
    w_scale = weight.qparams.scale
    raised = raised_scale(w_scale, bias, np.asarray(x.scale))
    count = int(np.count_nonzero(raised > w_scale))
    if count:
        notes.append(
            f"'{node.name}': the weight scale of {count} channel(s) was raised so that the bias "
            "fits int32 at x_scale * w_scale"
        )
        weight = dataclasses.replace(
            weight, qparams=dataclasses.replace(weight.qparams, scale=raised)
        )
    scale = sum_scale(x, weight.qparams)
    if raised.ndim:  # one scale per element of the bias: groups share those of the weight
        columns = bias.shape[-1] if bias.ndim else 1
        scale = np.tile(scale, max(columns // max(w_scale.size, 1), 1))
    # a bias of one row, or of one element, is stored as a vector; Gemm's may have a row per sample
    rows = bias.ndim > 1 and bias.shape[0] > 1
    granularity = PerChannel(int(rows)) if raised.ndim else PerTensor()
    qparams = QParams(scale, np.zeros(scale.shape, np.int32), INT32, granularity)
    return weight, BiasPlan(value.name, qparams, None if made is None else tuple(made.tolist()))


def constant_array(value: ir.Value) -> npt.NDArray[np.float32]:
    """The initializer's array, mapped from disk where it is external."""
    assert value.const_value is not None
    return value.const_value.numpy()
