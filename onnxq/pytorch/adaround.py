"""AdaRound: each weight is rounded up or down as training finds, layer by layer; for comparison.

    minimize over V   |Y - s clip(floor(W / s) + h(V)) X|^2 + strength sum (1 - |2 h(V) - 1|^beta)
    h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1)

X is what the layer reads in the quantized model, Y its result in float without the bias. h is a
rectified sigmoid, which reaches 0 and 1; beta falls from 20 to 2, so that first the error counts,
and at last every h is 0 or 1. (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training
Quantization", equations 21 to 25, with its constants.) `round` needs no training, and is nearer to
float: see docs/guides/improve.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxq.dtypes import INT8
from onnxq.improve.constants import NewConstants
from onnxq.improve.held_back import is_held_back
from onnxq.improve.improvement import Improved, WeightImprovement, register
from onnxq.improve.layerwise import NO_ELEMENTS, SHARED, Proposal, layerwise
from onnxq.observers.tensor_noise import decibels

if TYPE_CHECKING:
    from onnxq.core.arrays import Ints, Reals, Singles
    from onnxq.improve.layer import Layer
    from onnxq.samples import Batches
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

ITERATIONS = 1000
"""Steps of a layer; the paper takes 10,000, and loses little by a tenth of them."""
BATCH = 256
"""Places of a step."""
LEARNING_RATE = 1e-2
STRENGTH = 0.01
"""Weight of the term that makes h 0 or 1."""
WARM_UP = 0.2
"""Share of the steps without that term."""
BETA = (20.0, 2.0)
STRETCH = (1.2, -0.1)
"""Factor and summand that rectify the sigmoid."""
MOST_PLACES = 8192
"""Places of all samples that a layer learns from, and as many to judge by."""


@register
class AdaRound(WeightImprovement):
    """Adaptive rounding, trained with torch."""

    name = "adaround"

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """Layer by layer; see the module."""

        def begin(layer: Layer, batches: int) -> _Learning | str:
            if not layer.is_alone:
                return SHARED
            pairs = prepared.target.reduces_range and layer.rule.saturating_pairs
            if pairs and layer.plan.qparams.dtype == INT8:
                return "products of other codes may leave int16 on this target"
            return _Learning(layer, batches)

        return layerwise(prepared, plan, samples, self.name, begin)


class _Learning:
    """The work on one layer: places to learn from, and to judge by."""

    def __init__(self, layer: Layer, batches: int) -> None:
        self._layer, self._batches = layer, batches
        self._seen: tuple[list[_Pair], list[_Pair]] = ([], [])

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Keeps places of a batch."""
        bias = self._layer.bias[:, np.newaxis].astype(np.float32)
        for rows, results in self._layer.pairs(x, y, index, self._batches):
            step = max(1, rows.shape[1] * self._batches // MOST_PLACES)
            pair = rows[:, ::step].copy(), results[:, ::step] - bias
            self._seen[is_held_back(index)].append(pair)

    def proposal(self) -> Proposal:
        """The rounding that was learned, judged on the batches held back."""
        if not all(self._seen):
            return Proposal(None, why=NO_ELEMENTS)
        seen, held = (_joined(pairs) for pairs in self._seen)
        layer = self._layer
        low, high = (end[..., np.newaxis] for end in layer.ends)
        codes = learned(layer.matrix / layer.scale, layer.scale, (low, high), seen)
        errors = [error_of(stored, held) for stored in (layer.stored, codes * layer.scale)]
        before, after = (decibels(float(np.square(held[1]).sum()), error) for error in errors)
        weight = layer.on_grid(codes, layer.plan.qparams)
        return Proposal(NewConstants(weight, layer.plan.qparams), before, after)


_Pair = tuple["Singles", "Singles"]


def learned(weight: Reals, scale: Reals, ends: tuple[Ints, Ints], seen: _Pair) -> Ints:
    """Codes (groups, outputs, inputs), each the integer below or above.

    Args:
        weight: W / s, of that shape.
        scale: s, which broadcasts with it.
        ends: smallest and largest code, likewise.
        seen: X (groups, places, inputs) and Y (groups, places, outputs).
    """
    floor = np.floor(weight)
    factor, summand = STRETCH
    share = np.clip(weight - floor, 1e-3, 1 - 1e-3)
    sigmoid = (share - summand) / factor
    v = torch.tensor(np.log(sigmoid / (1 - sigmoid)), dtype=torch.float32, requires_grad=True)
    below, s, low, high = (torch.tensor(np.asarray(a, np.float32)) for a in (floor, scale, *ends))
    x, y = (torch.from_numpy(np.ascontiguousarray(a, np.float32)) for a in seen)
    optimizer = torch.optim.Adam([v], lr=LEARNING_RATE)
    random = torch.Generator().manual_seed(0)
    for step in range(ITERATIONS):
        places = torch.randint(x.shape[1], (min(BATCH, x.shape[1]),), generator=random)
        h = (torch.sigmoid(v) * factor + summand).clamp(0, 1)
        made = (below + h).clamp(low, high) * s
        loss = (y[:, places] - x[:, places] @ made.mT).square().sum((0, 2)).mean()
        progress = (step / ITERATIONS - WARM_UP) / (1 - WARM_UP)
        if progress > 0:
            beta = BETA[1] + (BETA[0] - BETA[1]) * (1 + math.cos(math.pi * progress)) / 2
            loss = loss + STRENGTH * (1 - (2 * h - 1).abs().pow(beta)).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()
    up = torch.sigmoid(v).detach().numpy() * factor + summand >= 1 / 2
    return np.asarray(np.clip(floor + up, *ends), np.int32)


def error_of(stored: Reals, seen: _Pair) -> float:
    """Sum of the squared error of the products with that weight (groups, outputs, inputs)."""
    x, y = seen
    left = y - np.matmul(x, stored.astype(np.float32).swapaxes(1, 2))
    return float(np.square(left, dtype=np.float64).sum())


def _joined(pairs: list[_Pair]) -> _Pair:
    rows, results = zip(*pairs, strict=True)
    return np.concatenate(rows, axis=1), np.concatenate(results, axis=1)
