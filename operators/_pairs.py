"""Sums of products as machines give them that add pairs of products in int16.

    total = exact sum + sum over pairs of (int16(a[i] b[i] + a[j] b[j]) - (a[i] b[i] + a[j] b[j]))

a and b are the integers as they are stored, zero points not subtracted; what is padded takes part
with the integer of its zero point. Measured with ONNX Runtime 1.31 (x86: AVX2; ARM: Cortex-A53,
A72, A76, A710, Neoverse V1), each pair of places by itself:

    x86, uint8 by int8: (2k, 2k + 1), saturates. K runs over (kernel, C / group) in QLinearConv,
        over (C / group, kernel) in ConvInteger, whose A is the weight: uint8 weights by int8
        images. An odd last product is alone. Exact: uint8 by uint8, int8 by anything, and
        QLinearConv with one input and one output channel per group.
    ARM, NEON: (k, k + 8) in each block of 16, where B is int8 (A uint8: the integer 0 counts as
        -128). Same K. Exact: B uint8; and QLinearConv of int8 by int8 with zero points of 0.
    ARM, all: QLinearConv with one input and one output channel per group, int8 weights whose zero
        points are 0, channels divisible by 8: taps (2k, 2k + 1); but (0, 2) (1, 3) (4, 6) (5, 7)
        where there are 9 taps and channels divisible by 16. Other depthwise convolutions are exact.

Sums of any length: measured to K = 70001. Constant weights are meant. With weights that are
computed at run time, which ONNX Runtime does not pack, ARM's depthwise convolutions are exact, and
NEON's of int8 by int8 wrap as those of uint8 do.
"""

import enum
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.operator import Array, IntegerCall, IntegerOperator, Ints
from onnxq.operator.integer_call import stored
from onnxq.operators._gemm import largest_absolute
from onnxq.qparams import IntArray
from onnxq.targets.accumulation import (
    EXACT,
    INT16_MAX,
    INT16_MIN,
    LOWEST,
    Accumulator,
    Overflows,
    Pairs,
    SaturationEffect,
    SaturationMode,
    may_overflow,
)

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

WRAP = -(1 << 16)  # what 2^15, which becomes -2^15, lacks
NEON_BLOCK = 16
NINE_TAPS = ((0, 2), (1, 3), (4, 6), (5, 7))
TRIPLES = 1 << 20  # products looked at together: 8 MiB per array
MANY = 1 << 11  # products of one pair of places that get a call of their own


class Weight(enum.Enum):
    """Which operand of a product is the weight."""

    LEFT = "A"
    RIGHT = "B"


def adds_pairs(
    saturation_mode: SaturationMode, a: np.dtype[np.generic], b: np.dtype[np.generic]
) -> bool:
    """Whether a matrix product of these types adds pairs in int16."""
    if saturation_mode is SaturationMode.SATURATES:  # vpmaddubsw
        return a == np.uint8 and b == np.int8
    return saturation_mode is SaturationMode.WRAPS and b == np.int8


def pair_places(saturation_mode: SaturationMode, inner: int) -> tuple[Places, Places]:
    """The places (i, j) of the pairs of a sum of `inner` products."""
    if saturation_mode is SaturationMode.SATURATES:
        first = np.arange(0, inner - 1, 2)
        return first, first + 1
    k = np.arange(max(inner - NEON_BLOCK // 2, 0))
    first = k[k % NEON_BLOCK < NEON_BLOCK // 2]
    return first, first + NEON_BLOCK // 2


def depthwise_places(taps: int, channels: int) -> tuple[Places, Places]:
    """The pairs of taps that a depthwise convolution adds in int16 on ARM; none: it is exact."""
    if channels % 8:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if taps == 9 and channels % 16 == 0:
        places = np.array(NINE_TAPS)
        return places[:, 0], places[:, 1]
    first = np.arange(0, taps - 1, 2)
    return first, first + 1


def matmul_pairs(
    a: np.dtype[np.generic], b: IntArray, saturation_mode: SaturationMode
) -> Pairs | None:
    """Pairs of a matrix product by b (..., K, N) or (K,); batches are one after another."""
    if not b.ndim or not adds_pairs(saturation_mode, a, b.dtype):
        return None
    matrix = b[:, None] if b.ndim == 1 else np.moveaxis(b, -2, 0).reshape(b.shape[-2], -1)
    return Pairs(matrix, *pair_places(saturation_mode, len(matrix)))


class PairedSums(IntegerOperator):
    """An operator on integers whose products some machines add in pairs."""

    @abstractmethod
    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        """Arrays of a machine that adds products as the accumulator does; `kernel` is exact."""

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        return self.kernel_on(call, EXACT)

    def pairs(self, call: IntegerCall, saturation_mode: SaturationMode) -> Pairs | None:
        """The product of input 0 by the first of `weights` has these pairs."""
        a, b = call.operand(0, "A"), call.operand(self.weights[0], "B")
        turned = b.T if call.integer("transB", 0) else b
        return matmul_pairs(a.dtype, stored(turned), saturation_mode)


def matmul_correction(a: IntArray, b: IntArray, accumulator: Accumulator) -> Ints | None:
    """Change that int16 makes in the product of integers a and b, shapes as np.matmul.

    None: nothing.

    Args:
        a: stored integers (..., M, K) or (K,).
        b: stored integers (..., K, N) or (K,).
        accumulator: of the machine.
    """
    if not adds_pairs(accumulator.saturation_mode, a.dtype, b.dtype):
        return None
    left = a[None] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if right.ndim == 2:
        found = correction(left.reshape(-1, left.shape[-1]).T, right, accumulator)
        total = None if found is None else found.T.reshape(*left.shape[:-1], right.shape[1])
    else:
        total = _of_batches(left, right, accumulator)
    if total is None or accumulator.effect is SaturationEffect.NOTED:
        return None
    total = total[..., 0] if b.ndim == 1 else total
    return np.asarray(total.reshape(total.shape[1:]) if a.ndim == 1 else total)


def _of_batches(a: IntArray, b: IntArray, accumulator: Accumulator) -> Ints | None:
    batches = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left = np.broadcast_to(a, (*batches, *a.shape[-2:]))
    right = np.broadcast_to(b, (*batches, *b.shape[-2:]))
    total = np.zeros((*batches, a.shape[-2], b.shape[-1]), np.int32)
    changed = False
    for index in np.ndindex(*batches):
        found = correction(left[index].T, right[index], accumulator)
        if found is not None:
            total[index], changed = found.T, True
    return total if changed else None


def correction(
    a: IntArray, b: IntArray, accumulator: Accumulator, weight: Weight = Weight.RIGHT
) -> Ints | None:
    """Change that int16 makes in sum_k a[k, m] b[k, n], (N, M); None: nothing.

    Args:
        a: stored integers (K, M), uint8 or int8, in the order in which they are added.
        b: stored integers (K, N), int8.
        accumulator: of a machine for which `adds_pairs` is true.
        weight: whose channels a note names.
    """
    saturation_mode = accumulator.saturation_mode
    first, second = pair_places(saturation_mode, len(b))
    right = may_overflow(saturation_mode, b, first, second)
    useful = np.flatnonzero(right.any(axis=1))
    if not useful.size:
        return None
    first, second, right = first[useful], second[useful], right[useful]
    named = None if accumulator.note is None else weight
    pairs = _Pairs(saturation_mode, a[first], a[second], b[first], b[second], named)
    total = np.zeros((b.shape[1], a.shape[1]), np.int32)
    found = list(pairs.overflows(pairs.hot(), right, total))
    if not found:
        return None
    if accumulator.note is not None and any(part.pair.size for part in found):
        pair, channel, count = (
            np.concatenate([getattr(part, name) for part in found])
            for name in ("pair", "channel", "count")
        )
        largest = max(part.change for part in found)
        changed = int(np.count_nonzero(total))
        accumulator.note(Overflows(first[pair], second[pair], channel, count, largest, changed))
    return total


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Sums beyond int16: how many per pair and channel, and the largest change of one."""

    pair: Places
    channel: Places
    count: Places
    change: int


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Integers that are added in pairs: a of shape (pairs, M), b (pairs, N).

    Attributes:
        named: whose channels are counted; None: nothing is.
    """

    saturation_mode: SaturationMode
    a_first: IntArray
    a_second: IntArray
    b_first: IntArray
    b_second: IntArray
    named: Weight | None

    def hot(self) -> Mask:
        """Which pairs of a leave int16 with some integers of b."""
        if self.saturation_mode is SaturationMode.SATURATES:
            return np.asarray(self.a_first > ~self.a_second)  # their sum is 256 or more
        lowest = 0 if self.a_first.dtype == np.uint8 else LOWEST  # uint8 is flipped to int8
        return np.asarray((self.a_first == lowest) & (self.a_second == lowest))

    def overflows(self, left: Mask, right: Mask, total: Ints) -> Iterator[_Found]:
        """Adds what int16 changes to `total`, and yields how often.

        Args:
            left: (pairs, M), what may overflow with some b.
            right: (pairs, N), what may overflow with some a.
            total: (N, M), changed in place.
        """
        sizes = np.count_nonzero(left, axis=1) * np.count_nonzero(right, axis=1)
        for p in np.flatnonzero(sizes > MANY):
            columns = np.flatnonzero(right[p])
            rows = self._may_overflow_rows(int(p), np.flatnonzero(left[p]), columns)
            step = max(1, TRIPLES // columns.size)
            for start in range(0, rows.size, step):
                yield from self._product(int(p), rows[start : start + step], columns, total)
        few = np.flatnonzero((sizes > 0) & (sizes <= MANY))
        sums = np.cumsum(sizes[few])
        cuts = np.searchsorted(sums, np.arange(TRIPLES, sums[-1] if few.size else 0, TRIPLES))
        for part in np.split(few, cuts):
            if part.size:
                yield from self._listed(part, left[part], right[part], total)

    def _may_overflow_rows(self, p: int, rows: Places, columns: Places) -> Places:
        """The rows that leave int16 with the largest weights of a pair, if these were in one."""
        if self.saturation_mode is not SaturationMode.SATURATES:
            return rows
        b_first, b_second = (
            int(np.abs(b[p, columns].astype(np.int32)).max()) for b in (self.b_first, self.b_second)
        )
        sums = self.a_first[p, rows].astype(np.int32) * b_first
        sums += self.a_second[p, rows].astype(np.int32) * b_second
        return np.asarray(rows[sums > INT16_MAX])

    def _product(self, p: int, rows: Places, columns: Places, total: Ints) -> Iterator[_Found]:
        """Change of one pair, every row by every column."""
        change = self._change(
            self.a_first[p, rows],
            self.a_second[p, rows],
            self.b_first[p, columns][:, None],
            self.b_second[p, columns][:, None],
        )
        total[columns[:, None], rows] += change
        if self.named is not None:
            hit = change != 0
            right = self.named is Weight.RIGHT
            count = np.count_nonzero(hit, axis=1 if right else 0)
            some = np.flatnonzero(count)
            channel = (columns if right else rows)[some]
            yield _Found(np.full(some.size, p), channel, count[some], largest_absolute(change))
        else:
            yield NOBODY_ASKS

    def _listed(self, pairs: Places, left: Mask, right: Mask, total: Ints) -> Iterator[_Found]:
        """Changes of several pairs, each row by each column of its own."""
        (p_row, rows), (p_column, columns) = np.nonzero(left), np.nonzero(right)
        width = np.bincount(p_column, minlength=len(pairs))
        repeats = width[p_row]
        before = np.repeat(np.cumsum(repeats) - repeats, repeats)
        which = np.repeat(np.arange(rows.size), repeats)
        p = p_row[which]
        column = columns[(np.cumsum(width) - width)[p] + np.arange(before.size) - before]
        row, pair = rows[which], pairs[p]
        change = self._change(
            self.a_first[pair, row],
            self.a_second[pair, row],
            self.b_first[pair, column],
            self.b_second[pair, column],
        )
        kept = np.flatnonzero(change)
        if not kept.size:
            return
        pair, row, column, change = pair[kept], row[kept], column[kept], change[kept]
        np.add.at(total.reshape(-1), column * total.shape[1] + row, change)
        if self.named is None:
            yield NOBODY_ASKS
            return
        channel = column if self.named is Weight.RIGHT else row
        size = max(total.shape)
        places, count = np.unique(pair * size + channel, return_counts=True)
        yield _Found(places // size, places % size, count, largest_absolute(change))

    def _change(self, a: IntArray, a_second: IntArray, b: IntArray, b_second: IntArray) -> Ints:
        if self.saturation_mode is not SaturationMode.SATURATES:
            shape = np.broadcast_shapes(a.shape, b.shape)
            return np.full(shape, WRAP, np.int32)  # all of them are (-128) (-128)
        exact = a.astype(np.int32) * b
        exact += a_second.astype(np.int32) * b_second
        change = np.clip(exact, INT16_MIN, INT16_MAX)
        change -= exact
        return np.asarray(change)


NOTHING = np.zeros(0, np.int64)
NOBODY_ASKS = _Found(NOTHING, NOTHING, NOTHING, 0)
