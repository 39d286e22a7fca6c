"""Accumulation: what becomes of two products of 8-bit integers that a machine adds in int16.

    EXACT              products are added in int32: x86 with VNNI
    UNFUSED            the same; but tensors of integers are added without fused multiply-adds: x86
                       without AVX2
    DIVIDES            the same; but tensors of integers are added and multiplied by one division:
                       WebAssembly
    SATURATES          a pair beyond int16 becomes 32767 or -32768: AVX2, AVX512 without VNNI
    WRAPS_DEPTHWISE    (-128) (-128) + (-128) (-128) = 2^15 becomes -2^15, in depthwise
                       convolutions: ARM with dot products or i8mm
    WRAPS              the same, in matrix products and dense convolutions too: ARM, plain NEON

Which integers make a pair, and which kernels add pairs at all, is in onnxq.operators._pairs, as
measured. One thing more differs: two tensors of integers are added (QLinearAdd) in fixed point and
multiplied (QLinearMul) by a fused multiply-add on ARM, and added without fused multiply-adds on x86
without AVX2 (onnxq.operators._machine_sums); in WebAssembly they are added and multiplied by a
division (onnxq.operators._divided). These round otherwise. All other integers are the same on every
machine.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
INT16_MAX, INT16_MIN = 32767, -32768
LOWEST = -128
MIN_OVERFLOW = 129  # smallest |b[i]| + |b[j]|, of one sign, for which 255 (b[i] + b[j]) overflows


class SaturationMode(enum.Enum):
    """How a machine adds two products of integers."""

    EXACT = "exact"
    """In int32."""
    UNFUSED = "exact, sums of integers unfused"
    """In int32; QLinearAdd without fused multiply-adds."""
    DIVIDES = "exact, sums and products of integers divided"
    """In int32; QLinearAdd and QLinearMul divide by the scale of the result."""
    SATURATES = "saturates"
    """uint8 by int8, neighbours (2k, 2k + 1): in int16, which saturates."""
    WRAPS_DEPTHWISE = "wraps in depthwise"
    """Pairs of taps of a depthwise convolution: in int16, which wraps."""
    WRAPS = "wraps"
    """Adjacent pairs; (k, k + 8) of matrix products and dense convolutions with int8 weights."""

    @property
    def fixed_point(self) -> bool:
        """Whether it is ARM's, which adds in fixed point and multiplies by a fused multiply-add."""
        return self in (SaturationMode.WRAPS, SaturationMode.WRAPS_DEPTHWISE)

    @property
    def adds_integers_otherwise(self) -> bool:
        """Whether QLinearAdd may round otherwise than with fused multiply-adds."""
        return self.fixed_point or self.divides or self is SaturationMode.UNFUSED

    @property
    def divides(self) -> bool:
        """Whether it is WebAssembly's, whose QLinearAdd and QLinearMul divide."""
        return self is SaturationMode.DIVIDES

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, eq=False)
class Overflows:
    """Pairs of one part of a kernel's work whose sums left int16; one entry each.

    A pair and channel may have several entries, of several parts. Of QLinearAdd and QLinearMul:
    pairs of integers of A and B whose results are rounded otherwise; channel 0.

    Attributes:
        first: places of the first weight of the pair in the weights of that channel, int64 (n,);
            of W (O, C / group, *kernel) in W[o].reshape(-1), of B (K, N) the row.
        second: of the other weight.
        channel: output channel of a convolution, column of a matrix product.
        count: how many sums.
        change: the largest |change| that one of them made to the accumulator.
        changed: elements of the accumulator that changed.
    """

    first: Counts
    second: Counts
    channel: Counts
    count: Counts
    change: int
    changed: int


def joined(parts: Sequence[Overflows]) -> Overflows | None:
    """Several as one, with one entry for each pair and channel; None for none."""
    if not parts:
        return None
    first, second, channel, count = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("first", "second", "channel", "count")
    )
    places = int(max(first.max(initial=0), second.max(initial=0))) + 1
    keys, index, which = np.unique(
        (channel * places + first) * places + second, return_index=True, return_inverse=True
    )
    sums = np.zeros(keys.size, np.int64)
    np.add.at(sums, which, count)
    return Overflows(
        first[index],
        second[index],
        channel[index],
        sums,
        max(part.change for part in parts),
        sum(part.changed for part in parts),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Weights whose products with activations a machine adds in int16, two by two."""

    weights: npt.NDArray[np.integer]
    first: Counts
    second: Counts
    places: Counts | None = None


def may_overflow(
    saturation_mode: SaturationMode, b: npt.NDArray[np.integer], first: Counts, second: Counts
) -> npt.NDArray[np.bool_]:
    """Which pairs of int8 integers b (K, N) leave int16 with some integers of A; (pairs, N)."""
    left, right = b[first], b[second]
    if saturation_mode is not SaturationMode.SATURATES:
        return np.asarray((left == LOWEST) & (right == LOWEST))
    left, right = left.astype(np.int16), right.astype(np.int16)
    above = np.maximum(left, 0) + np.maximum(right, 0) >= MIN_OVERFLOW
    below = np.minimum(left, 0) + np.minimum(right, 0) <= -MIN_OVERFLOW
    return np.asarray(above | below)


def risks(pairs: Pairs | None, saturation_mode: SaturationMode) -> Overflows | None:
    """Pairs of weights whose sums leave int16 with some integers; None: no pair."""
    if pairs is None:
        return None
    first, second = pairs.first, pairs.second
    pair, channel = np.nonzero(may_overflow(saturation_mode, pairs.weights, first, second))
    if not pair.size:
        return None
    if pairs.places is not None:
        first, second = pairs.places[first], pairs.places[second]
    return Overflows(first[pair], second[pair], channel, np.zeros(pair.size, np.int64), 0, 0)


Note = Callable[[Overflows], None]
"""Hears of what overflowed; from several threads, in any order."""


class SaturationEffect(enum.Enum):
    """Effect on sums that leave int16."""

    APPLIED = "applied"
    """The result is the machine's."""
    NOTED = "noted"
    """The result is exact; it is only told what the machine would have done."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How the products of a kernel are added, and who hears of what did not fit.

    Attributes:
        saturation_mode: of the machine.
        effect: on the result.
    """

    saturation_mode: SaturationMode = SaturationMode.EXACT
    note: Note | None = None
    effect: SaturationEffect = SaturationEffect.APPLIED

    @property
    def exact(self) -> bool:
        """Whether nothing can overflow."""
        return self.saturation_mode is SaturationMode.EXACT


EXACT = Accumulator()
"""Accumulator of machines whose pairs always fit; kernels reproduce it where none is named."""
