"""Tensors that 8 bits cannot hold, as the statistics tell: they are better left in float.

    noise of a tensor = 1 / SQNR, in itself or behind the node that magnifies its error most

Roundings are independent, so that their noises add. A rounding is unfit where it alone outweighs
all others together, were each of them like the typical one of the model: leaving it out then gains
3 dB or more, and there are as few such tensors as there are causes.
"""

from __future__ import annotations

import math
import statistics as numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.observers import NormalizationObserver
from onnxq.observers.tensor_noise import TensorNoise, predicted_noise
from onnxq.static.noise.error_paths import End, ends, of_codes
from onnxq.static.planning.activation_qparams import tensor_qparams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnxq.qparams import QParams
    from onnxq.static.prepare import Prepared
    from onnxq.static.statistics import Statistics

TYPICAL_DB = 36.0
"""SQNR of 8 bits on a Laplace distribution, at the grid of least error: what a tensor without
outliers has at least. A model whose typical tensor is worse is measured against this."""


@dataclass(frozen=True, slots=True)
class Kept:
    """SQNR that codes leave of a tensor.

    Attributes:
        tensor: its name.
        noise: of the tensor in itself.
        end: the node behind which least is left; None: nothing magnifies its error.
        behind_db: what is left there; None without an end.
    """

    tensor: str
    noise: TensorNoise
    end: End | None
    behind_db: float | None

    @property
    def worst_db(self) -> float:
        """The smaller of both; infinity where neither is known."""
        return min(
            math.inf if self.noise.sqnr_db is None else self.noise.sqnr_db,
            math.inf if self.behind_db is None else self.behind_db,
        )


@dataclass(frozen=True, slots=True)
class Unfit:
    """A tensor that would lose too much in codes.

    Attributes:
        kept: figures.
        reason: in words, with these figures.
    """

    kept: Kept
    reason: str


def unfit(
    prepared: Prepared, statistics: Statistics, tensors: Mapping[str, QParams] | None = None
) -> dict[str, Unfit]:
    """Tensor -> why it should stay in float; tensors that codes can hold are missing.

    Args:
        prepared: its groups are looked at.
        statistics: of its model.
        tensors: qparams of the groups' members; None: as `plan` would give them.
    """
    found = kept(prepared, statistics, tensors)
    line = line_db(one.worst_db for one in found.values())
    return {
        name: Unfit(one, _reason(one, line, statistics))
        for name, one in found.items()
        if one.worst_db < line
    }


def line_db(worst_db: Iterable[float]) -> float:
    """SQNR below which one rounding outweighs all: typical SQNR - 10 log10(number of roundings)."""
    known = [db for db in worst_db if db < math.inf]
    if not known:
        return -math.inf
    return max(numbers.median(known), TYPICAL_DB) - 10 * math.log10(len(known))


def kept(
    prepared: Prepared, statistics: Statistics, tensors: Mapping[str, QParams] | None = None
) -> dict[str, Kept]:
    """Tensor -> Kept, for each observed tensor that would be rounded; arguments as `unfit`."""
    qparams = tensor_qparams(prepared, statistics)[0] if tensors is None else tensors
    paths = ends(prepared.model, statistics.watched)
    found = {}
    for group in prepared.groups:
        for tensor in group.sources:
            if tensor not in qparams:
                continue
            noise = _noise(tensor, qparams[tensor], statistics)
            if noise is None:
                continue
            error = of_codes(noise, float(qparams[tensor].scale))
            behind = [(end.sqnr_db(error), end) for end in paths.get(tensor, ())]
            worst = min(behind, key=lambda pair: pair[0], default=None)
            found[tensor] = (
                Kept(tensor, noise, None, None)
                if worst is None
                else Kept(tensor, noise, worst[1], worst[0])
            )
    return found


def _noise(tensor: str, qparams: QParams, statistics: Statistics) -> TensorNoise | None:
    if tensor in statistics.observers:
        return predicted_noise(statistics.observers[tensor], qparams)
    if qparams.scale.ndim:
        return None
    codes = qparams.dtype.qmax - qparams.dtype.qmin + 1
    return TensorNoise(None, float(qparams.scale) ** 2 / 12, 0.0, float(codes))


def _reason(one: Kept, line: float, statistics: Statistics) -> str:
    own = one.noise.sqnr_db
    limit = f"all roundings together allow {line:.1f} dB"
    if one.end is None or one.behind_db is None or (own is not None and own <= one.behind_db):
        return f"tensor '{one.tensor}' would keep {own:.1f} dB in 8 bits; {limit}"
    in_itself = "" if own is None else f" ({own:.1f} dB in itself)"
    return (
        f"tensor '{one.tensor}' would keep {one.behind_db:.1f} dB behind {one.end.node} in 8 bits"
        f"{in_itself}; {limit}{_channels(one.end, statistics)}"
    )


def _channels(end: End, statistics: Statistics) -> str:
    """How far the widest channels ahead of a normalization stick out, or the empty string."""
    seen = statistics.watched.get(end.tensor)
    if not isinstance(seen, NormalizationObserver) or not seen.channel_max.size:
        return ""
    widths = seen.channel_max.astype(np.float64) - seen.channel_min
    middle = float(np.median(widths))
    wide = widths[widths > widths.max() / 2]
    if wide.size * 2 >= widths.size:
        return ""
    return (
        f": {wide.size} of {widths.size} channels range over {widths.max():.3g}, the median "
        f"channel over {middle:.3g}"
    )
