"""Minimum and maximum of a tensor, found, averaged and made into a scale by tensor operations.

    min_max (-min x, max x), shape (2,), or (2, channels); (-inf, -inf) before any data
    widest  max(seen, min_max)
    average seen + c (min_max - seen)                   its first batch as it is

With the minimum negated both are treated alike. Nothing here reads a value on the host: a batch
with NaN or infinite values is left out and counted on the device. The numbers are those of the
observers in onnxq.observers, to the bit: float32, and one division by a tensor, since torch divides
a CUDA tensor by a number with its reciprocal.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onnxq.errors import CalibrationError
from onnxq.observers import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    Observer,
    PerChannelMinMaxObserver,
)
from onnxq.observers.value_range import EPS

UNSEEN = -math.inf
_WIDEST = (MinMaxObserver, PerChannelMinMaxObserver, NarrowRangeObserver)
_AVERAGES = (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class MinMaxRule:
    """Rule by which an observer combines min and max of its batches.

    Attributes:
        averaging_constant: weight of a new batch; None: the widest range counts.
        symmetric: whether the larger magnitude alone counts; the zero point is `middle` then.
        span: distance of the integers that the range is spread over.
        quant_min: smallest integer.
        quant_max: largest integer.
        middle: zero point of a symmetric rule.
        eps: smallest scale.
        eps_is_relative: eps is a share of the largest channel's scale.
    """

    averaging_constant: float | None
    symmetric: bool
    span: float
    quant_min: int
    quant_max: int
    middle: int
    eps: float
    eps_is_relative: bool

    def seen_with(self, seen: Tensor, min_max: Tensor) -> tuple[Tensor, Tensor]:
        """(-min and max that count now, bool (): whether the batch, not finite, was left out)."""
        new = self.folded(seen, min_max)
        # a symmetric range may be twice as wide as the largest float32
        width = (new * 0.5 if self.symmetric else new).sum(0)
        is_fine = width < math.inf
        if is_fine.ndim:
            is_fine = is_fine.all()
        return torch.where(is_fine, new, seen), is_fine.logical_not()

    def folded(self, seen: Tensor, min_max: Tensor) -> Tensor:
        """(-min, max) that count after a batch, whatever its values are."""
        if self.averaging_constant is None:
            return torch.maximum(seen, min_max)
        moved = (min_max - seen).mul_(self.averaging_constant).add_(seen)
        return torch.where(moved.isnan(), min_max, moved)  # -inf - -inf: the first batch

    def scale_and_zero_point(self, min_max: Tensor, span: Tensor) -> tuple[Tensor, Tensor]:
        """The qparams that cover [min, max] and 0: what the observer's calculate_qparams gives."""
        clipped = min_max.clamp_min(0)
        if self.eps_is_relative:
            scale = min_max.amax(0) / span
            largest = scale.amax()
            floor = torch.where(largest > 0, largest, 1.0).mul(self.eps).clamp_min(_TINY)
            return torch.maximum(scale, floor), torch.zeros_like(scale)
        scale = (clipped.amax(0) if self.symmetric else clipped.sum(0)) / span
        increased = scale.clamp_min(self.eps)
        # values that are all 0 ask for no scale: torch's, however small the eps
        scale = increased if self.eps >= EPS else torch.where(scale > 0, increased, EPS)
        if self.symmetric:
            return scale, torch.full_like(scale, self.middle)
        zero_point = (clipped[0] / scale).round_().add_(self.quant_min)
        return scale, zero_point.clamp_(self.quant_min, self.quant_max)


def rule_of(observer: Observer) -> MinMaxRule | None:
    """The rule of an observer that needs min and max alone; None: it has to see the values.

    A subclass may compute otherwise: it is no such observer.
    """
    kind = type(observer)
    if kind not in (*_WIDEST, *_AVERAGES):
        return None
    limits = observer.range
    is_narrow = kind is NarrowRangeObserver
    symmetric = observer.qscheme.symmetric
    return MinMaxRule(
        averaging_constant=getattr(observer, "averaging_constant", None),
        symmetric=symmetric,
        span=limits.quant_max if is_narrow else limits.span / 2 if symmetric else limits.span,
        quant_min=limits.quant_min,
        quant_max=limits.quant_max,
        middle=0 if is_narrow else limits.middle,
        eps=limits.eps,
        eps_is_relative=is_narrow,
    )


def min_max_of(x: Tensor, axis: int | None) -> Tensor:
    """(-min, max) of x, or of its channels along an axis: float32 (2,), or (2, channels)."""
    check_values(x)
    low, high = _least_and_largest(x, axis)
    return torch.stack([low.neg(), high]).to(torch.float32)


def check_values(x: Tensor) -> None:
    """Guards what is observed."""
    if x.is_meta:
        raise CalibrationError(
            "the tensor is on the meta device, which holds no values to observe; run the model on "
            "data, or turn the observer off with disable_observer()."
        )


def _least_and_largest(x: Tensor, axis: int | None) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        none = x.new_full(() if axis is None else (x.shape[axis],), UNSEEN)
        return none.neg(), none
    if axis is None:
        low, high = torch.aminmax(x)
        return low, high
    if not -x.ndim <= axis < x.ndim:
        raise CalibrationError(f"shape {list(x.shape)} has no ch_axis {axis}.")
    if x.ndim == 1:
        return x, x  # no other axis; torch takes that for all of them
    others = [i for i in range(x.ndim) if i != axis % x.ndim]
    return x.amin(others), x.amax(others)  # 20 times as fast as aminmax along an axis


def extremes(x: Tensor, axis: int | None) -> npt.NDArray[np.float32]:
    """A small float32 array with the min and max of x, or of each channel along the axis."""
    min_max = min_max_of(x, axis).to("cpu").numpy()
    if not np.isfinite(min_max).all():
        raise CalibrationError(_not_finite(x))
    both = np.stack([-min_max[0], min_max[1]])
    if axis is None:
        return both
    channels_second = [2, -1, *[1] * (x.ndim - 2)]
    return np.moveaxis(both.reshape(channels_second), 1, axis)


def _not_finite(x: Tensor) -> str:
    bad = ~torch.isfinite(x.to(torch.float32))
    first = bad.nonzero()[0].tolist()
    return (
        f"{int(bad.sum())} of {x.numel()} values are NaN or infinite in float32, the first, "
        f"{x[tuple(first)].item()}, at {first} of shape {list(x.shape)}; lower the learning rate, "
        "or correct the input; a mask of -inf has to be boolean, or a constant of the module."
    )


# --- Min and max in a state_dict, and as the state of the observer that they stand for.
#
# A state_dict has min_val and max_val, by PyTorch's names.

MIN, MAX = "min_val", "max_val"


def observer_state(
    observer: Observer, min_max: npt.NDArray[np.float32]
) -> dict[str, npt.NDArray[np.generic]]:
    """State that the observer's load_state takes."""
    has_seen = bool(min_max.size and np.isfinite(min_max).all())
    low, high = np.asarray(-min_max[0]), np.asarray(min_max[1])
    if isinstance(observer, NarrowRangeObserver):
        return {"absmax": np.maximum(-low, high) if has_seen else np.empty(0, np.float32)}
    if not isinstance(observer, MovingAverageMinMaxObserver):
        return {"min": low, "max": high}
    rows = slice(0, 1 if has_seen else 0)  # one batch, which stands for all
    return {"index": np.zeros(1, np.int64)[rows], "min": low[None][rows], "max": high[None][rows]}


def save_min_max(destination: Any, prefix: str, min_max: Tensor) -> None:
    """Writes min and max into a state_dict."""
    destination[prefix + MIN] = min_max[0].neg()
    destination[prefix + MAX] = min_max[1].clone()


def take_min_max(state_dict: dict[str, Any], prefix: str, missing: list[str]) -> Tensor | None:
    """Min and max in a state_dict, whose entries are removed from it; None: they are missing."""
    low, high = (state_dict.pop(prefix + name, None) for name in (MIN, MAX))
    if low is None or high is None:
        missing += [prefix + name for name in (MIN, MAX)]
        return None
    return torch.stack([-low.detach(), high.detach()]).to(torch.float32)
