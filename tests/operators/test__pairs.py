from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.operators import _pairs
from onnxq.operators._pairs import adds_pairs, depthwise_places, matmul_correction, pair_places
from onnxq.targets.accumulation import (
    Accumulator,
    Overflows,
    SaturationEffect,
    SaturationMode,
    joined,
    may_overflow,
)

Ints = npt.NDArray[np.int64]
SAT, WRAPS = SaturationMode.SATURATES, SaturationMode.WRAPS


def integers(
    seed: int, shape: tuple[int, ...], dtype: str, lowest: float = 0
) -> npt.NDArray[np.int8]:
    """Random integers of the full range; a share of them is the lowest integer."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    x[rng.random(shape) < lowest] = info.min
    return x


def signed(a: npt.NDArray[np.generic]) -> Ints:
    """ARM's view: uint8 is flipped to int8."""
    return a.astype(np.int64) - (128 if a.dtype == np.uint8 else 0)


def saturating(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> Ints:
    """The model written out: vpmaddubsw over neighbours, an odd last product alone."""
    total = np.zeros((len(a), b.shape[1]), np.int64)
    for k in range(0, a.shape[1], 2):
        part = slice(k, k + 2)
        total += np.clip(a[:, part].astype(np.int64) @ b[part].astype(np.int64), -32768, 32767)
    return total - a.astype(np.int64) @ b.astype(np.int64)


def wrapping(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> Ints:
    """smull and smlal over k and k + 8 of each block of 16."""
    total = np.zeros((len(a), b.shape[1]), np.int64)
    for k in range(0, a.shape[1], 16):
        for i in range(k, min(k + 8, a.shape[1])):
            pair = [j for j in (i, i + 8) if j < a.shape[1]]
            total += (signed(a)[:, pair] @ b[pair].astype(np.int64)).astype(np.int16)
    return total - signed(a) @ b.astype(np.int64)


@pytest.mark.parametrize("inner", [1, 2, 5, 17, 40, 257])
@pytest.mark.parametrize("lowest", [0, 0.5])
def test_saturation_is_the_sum_over_neighbours(inner: int, lowest: float) -> None:
    a, b = integers(1, (9, inner), "uint8", lowest), integers(2, (inner, 7), "int8", lowest)
    found = matmul_correction(a, b, Accumulator(SAT))
    wanted = saturating(a, b)
    assert np.array_equal(0 if found is None else found, wanted if found is not None else 0)
    assert found is not None or not wanted.any()


@pytest.mark.parametrize("inner", [1, 9, 17, 40, 257])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_wrapping_is_the_sum_over_k_and_k_plus_8(inner: int, dtype: str) -> None:
    a, b = integers(1, (9, inner), dtype, 0.5), integers(2, (inner, 7), "int8", 0.5)
    found = matmul_correction(a, b, Accumulator(WRAPS))
    wanted = wrapping(a, b)
    assert np.array_equal(np.zeros_like(wanted) if found is None else found, wanted)


def test_sums_are_of_any_length() -> None:
    a, b = integers(1, (2, 70001), "uint8"), integers(2, (70001, 3), "int8")
    found = matmul_correction(a, b, Accumulator(SAT))
    assert found is not None
    assert np.array_equal(found, saturating(a, b).astype(np.int32))


@pytest.mark.parametrize("many", [0, 1 << 30])
@pytest.mark.parametrize("triples", [64, 1 << 20])
def test_many_and_few_products_of_a_pair_give_the_same(
    many: int, triples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pairs, "MANY", many)
    monkeypatch.setattr(_pairs, "TRIPLES", triples)
    a, b = integers(1, (30, 33), "uint8"), integers(2, (33, 11), "int8")
    notes: list[Overflows] = []
    found = matmul_correction(a, b, Accumulator(SAT, notes.append))
    assert found is not None
    assert np.array_equal(found, saturating(a, b))
    heard = joined(notes)
    assert heard is not None
    wanted = np.zeros((16, 11), np.int64)
    for k in range(16):
        part = slice(2 * k, 2 * k + 2)
        exact = a[:, part, None].astype(np.int64) * b[part]
        sums = exact.sum(1)
        wanted[k] = ((sums > 32767) | (sums < -32768)).sum(0)
    counts = np.zeros_like(wanted)
    counts[heard.first // 2, heard.channel] = heard.count
    assert np.array_equal(counts, wanted)
    assert np.array_equal(heard.second, heard.first + 1)
    assert heard.changed == np.count_nonzero(found)


@pytest.mark.parametrize(
    ("left", "right"), [((4, 3, 33), (33, 5)), ((4, 3, 33), (4, 33, 5)), ((33,), (33, 5))]
)
def test_shapes_are_those_of_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = integers(1, left, "uint8"), integers(2, right, "int8")
    found = matmul_correction(a, b, Accumulator(SAT))
    assert found is not None
    assert found.shape == np.matmul(a, b).shape
    rows = a.reshape(-1, *a.shape[-2:]) if a.ndim > 1 else a[None, None]
    stack = np.broadcast_to(b, (len(rows), *b.shape[-2:]))
    parts = [saturating(x, y) for x, y in zip(rows, stack, strict=True)]
    assert np.array_equal(found, np.stack(parts).reshape(found.shape))


def test_column_vectors_have_one_column() -> None:
    a, b = integers(1, (60, 133), "uint8"), integers(2, (133,), "int8")
    found = matmul_correction(a, b, Accumulator(SAT))
    assert found is not None
    assert np.array_equal(found, saturating(a, b[:, None])[:, 0])


def test_noted_overflows_change_nothing() -> None:
    a, b = integers(1, (6, 33), "uint8"), integers(2, (33, 5), "int8")
    notes: list[Overflows] = []
    assert matmul_correction(a, b, Accumulator(SAT, notes.append, SaturationEffect.NOTED)) is None
    assert notes


@pytest.mark.parametrize(
    ("saturation_mode", "pairs"),
    [
        (SaturationMode.EXACT, set()),
        (SAT, {("uint8", "int8")}),
        (SaturationMode.WRAPS_DEPTHWISE, set()),
        (WRAPS, {("uint8", "int8"), ("int8", "int8")}),
    ],
)
def test_types_whose_products_are_added_in_pairs(
    saturation_mode: SaturationMode, pairs: set[tuple[str, str]]
) -> None:
    types = ("uint8", "int8")
    found = {
        (a, b)
        for a in types
        for b in types
        if adds_pairs(saturation_mode, np.dtype(a), np.dtype(b))
    }
    assert found == pairs


def test_seven_bit_weights_never_saturate_and_no_pair_is_missed() -> None:
    first, second = pair_places(SAT, 2)
    for low, high in ((64, 64), (65, 64), (-64, -64), (-64, -65), (127, -128), (1, 127), (2, 127)):
        b = np.array([[low], [high]], np.int8)
        corners = np.array([[p, q] for p in (0, 255) for q in (0, 255)], np.uint8)
        wanted = bool(saturating(corners, b).any())
        assert bool(may_overflow(SAT, b, first, second).any()) == wanted, (low, high)


def test_pairs_of_taps_depend_on_taps_and_channels() -> None:
    def pairs(taps: int, channels: int) -> list[tuple[int, int]]:
        first, second = depthwise_places(taps, channels)
        return list(zip(first.tolist(), second.tolist(), strict=True))

    assert pairs(9, 32) == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert pairs(9, 24) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert pairs(25, 16)[-1] == (22, 23)
    assert pairs(9, 12) == []
