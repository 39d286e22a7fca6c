"""Hessians of inputs: of whole rows, batch after batch, and in parts that fit into memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import onnxq
from onnxq.errors import CalibrationError
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights import hessian
from onnxq.weights.hessian import (
    MAKING_BYTES,
    MOST_BYTES,
    SOLVER_BYTES,
    InputHessians,
    InputSums,
    noise_in,
    parts_of_inputs,
)
from onnxq.weights.solve import prepared
from tests.dynamic_models import normal, parsed
from tests.weights.block_models import hessian_of, weight


def test_sums_of_batches_are_the_hessian_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hessian, "STRIPE", 5)
    seen, wanted = np.random.default_rng(0).normal(size=(2, 40, 12)).astype(np.float32)
    sums = InputSums("x", 12, has_cross=True)
    for start in range(0, 40, 16):
        sums.add(seen[start : start + 16], wanted[start : start + 16])
    made, whole = sums.hessian(), hessian_of(seen, wanted)
    # float32 products of at most 40 rows, in another order
    np.testing.assert_allclose(made.matrix, whole.matrix, atol=1e-6)
    assert np.array_equal(made.matrix, made.matrix.T)
    assert made.cross is not None
    assert whole.cross is not None
    np.testing.assert_allclose(made.cross, whole.cross, atol=1e-6)


def test_rows_that_are_not_finite_name_their_tensor() -> None:
    sums = InputSums("hidden", 3, has_cross=False)
    with pytest.raises(CalibrationError, match="tensor 'hidden'"):
        sums.add(np.array([[1, np.inf, 0]], np.float32), None)


def test_no_rows_are_refused() -> None:
    with pytest.raises(CalibrationError, match="has no rows"):
        InputSums("hidden", 3, has_cross=False).hessian()


HALVES = (slice(0, 128), slice(128, 192))


@pytest.mark.parametrize(
    ("inputs", "count"),
    [(64, 1), (5632, 1), (6400, 1), (8192, 2), (11008, 2), (14336, 3), (28672, 9)],
)
def test_there_are_as_few_parts_as_fit(inputs: int, count: int) -> None:
    parts = parts_of_inputs(inputs)
    assert len(parts) == count
    assert parts[0].start == 0
    assert parts[-1].stop == inputs
    for one, other in itertools.pairwise(parts):
        assert one.stop == other.start
        assert one.stop % 128 == 0, "a part ends with a group, whatever its size"
    widest = max(part.stop - part.start for part in parts)
    assert SOLVER_BYTES * inputs * widest + MAKING_BYTES * widest**2 <= MOST_BYTES


def hessians(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> InputHessians:
    return InputHessians(HALVES, lambda part: hessian_of(rows[:, part]))


@pytest.mark.parametrize("block", [16, 128])
def test_integers_of_parts_stand_beside_each_other(block: int) -> None:
    rows, w, spec = normal(300, 192), weight(6, 192), GroupSpec(4, block)
    made = prepared(Method.GPTQ, hessians(rows))(w, spec)
    for part in HALVES:
        alone = InputHessians.whole(hessian_of(rows[:, part]))
        wanted = prepared(Method.GPTQ, alone)(np.ascontiguousarray(w[:, part]), spec)
        blocks = slice(part.start // block, -(-part.stop // block))
        assert np.array_equal(made.integers[:, part], wanted.integers)
        assert np.array_equal(made.scale[:, blocks], wanted.scale)
    assert made.integers.shape == w.shape


def test_noise_is_the_mean_square_of_what_the_layer_loses() -> None:
    rows, left = normal(50, 192), normal(5, 192, seed=1).astype(np.float64)
    lost = np.square(rows @ left.T).sum(1).mean()
    assert noise_in(left, [(slice(None), hessian_of(rows))]) == pytest.approx(lost)


def test_gptq_in_parts_is_nearly_as_good_as_of_the_whole() -> None:
    rows, w, spec = normal(400, 192) @ normal(192, 192, seed=1), weight(16, 192), GroupSpec(4, 32)
    whole = hessian_of(rows)

    def noise(inputs: InputHessians | None, method: Method) -> float:
        left = np.asarray(w - prepared(method, inputs)(w, spec).dequantized, np.float64)
        return noise_in(left, InputHessians.whole(whole).all())

    nearest = noise(None, Method.RTN)
    best, parts = noise(InputHessians.whole(whole), Method.GPTQ), noise(hessians(rows), Method.GPTQ)
    assert best < parts < nearest


def test_the_plan_says_which_weights_are_solved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.weights.hessian.MOST_BYTES", 200_000)
    text = "g (float[n, 256] x) => (float[n, 8] y) { h = Tanh(x)  y = MatMul(h, w) }"
    made = onnxq.quantize_weights(parsed(text, {"w": normal(256, 8)}), {"x": normal(64, 256)})
    assert made.verdict is not None
    (note,) = (note for note in made.verdict.notes if "in parts" in note)  # beside one on speed
    assert "1 weights have so many inputs that gptq solves them in parts, each by itself" in note
    assert "('MatMul_y': 256 inputs, 2 parts)" in note


def test_of_few_rows_most_is_chance_and_of_many_next_to_nothing() -> None:
    """The share of 16 inputs from n rows, whose powers differ by 30."""
    rng, powers = np.random.default_rng(0), np.geomspace(1, 30, 16)
    shares = []
    for count in (1, 8, 64, 4096):
        sums = InputSums("x", 16, has_cross=False)
        sums.add((rng.standard_normal((count, 16)) * np.sqrt(powers)).astype(np.float32), None)
        shares.append(sums.hessian().shrinkage.covariance)
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.01


@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_inputs_without_a_pattern_are_all_chance(mean: float) -> None:
    """A mean is none: it is known long before what varies about it."""
    rows = mean + np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    sums = InputSums("x", 32, has_cross=False)
    sums.add(rows[:40], None)
    sums.add(rows[40:], None)
    found = sums.hessian()
    assert found.shrinkage.covariance > 0.9
    assert found.shrinkage.mean == pytest.approx(1 / (63 * mean**2) if mean else 1.0, rel=0.1)
    known = (1 - found.shrinkage.mean) * np.outer(found.mean, found.mean)
    np.testing.assert_allclose(found.shrunk() - known, np.eye(32), atol=0.1)
    assert np.abs(found.matrix - known - np.eye(32)).max() > 0.3


def test_shares_are_those_of_rows_about_their_mean() -> None:
    """The sums of one pass give what a second one would, of centred rows."""
    rows = np.random.default_rng(0).gamma(1, 2, (50, 8)).astype(np.float32)
    sums, centred = (InputSums("x", 8, has_cross=False) for _ in range(2))
    sums.add(rows, None)
    centred.add(rows - rows.mean(0), None)
    apart, about = sums.hessian().shrinkage, centred.hessian().shrinkage
    assert apart.covariance == pytest.approx(about.covariance, rel=1e-4)
