"""Inputs of a group, and the parts that their moments are kept of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import onnxq
from onnxq.qparams.group_spec import BlockSpec, Method
from onnxq.weights.seen_inputs import (
    MAKING_BYTES,
    MOST_BYTES,
    SOLVER_BYTES,
    SeenInputs,
    noise_in,
    parts_of_inputs,
)
from onnxq.weights.solve import prepared
from tests.dynamic_models import normal, parsed
from tests.weights.block_models import moments_of, weight

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
        assert one.stop % 128 == 0, "a part ends with a block, whatever its size"
    widest = max(part.stop - part.start for part in parts)
    assert SOLVER_BYTES * inputs * widest + MAKING_BYTES * widest**2 <= MOST_BYTES


def moments(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> SeenInputs:
    return SeenInputs(HALVES, lambda part: moments_of(rows[:, part]))


@pytest.mark.parametrize("block", [16, 128])
def test_codes_of_parts_stand_beside_each_other(block: int) -> None:
    rows, w, spec = normal(300, 192), weight(6, 192), BlockSpec(4, block)
    made = prepared(Method.GPTQ, moments(rows))(w, spec)
    for part in HALVES:
        alone = SeenInputs.whole(moments_of(rows[:, part]))
        wanted = prepared(Method.GPTQ, alone)(np.ascontiguousarray(w[:, part]), spec)
        blocks = slice(part.start // block, -(-part.stop // block))
        assert np.array_equal(made.codes[:, part], wanted.codes)
        assert np.array_equal(made.scale[:, blocks], wanted.scale)
    assert made.codes.shape == w.shape


def test_noise_is_the_mean_square_of_what_the_product_loses() -> None:
    rows, left = normal(50, 192), normal(5, 192, seed=1).astype(np.float64)
    lost = np.square(rows @ left.T).sum(1).mean()
    assert noise_in(left, [(slice(None), moments_of(rows))]) == pytest.approx(lost)


def test_gptq_in_parts_is_nearly_as_good_as_of_the_whole() -> None:
    rows, w, spec = normal(400, 192) @ normal(192, 192, seed=1), weight(16, 192), BlockSpec(4, 32)
    whole = moments_of(rows)

    def noise(inputs: SeenInputs | None, method: Method) -> float:
        left = np.asarray(w - prepared(method, inputs)(w, spec).reals, np.float64)
        return noise_in(left, SeenInputs.whole(whole).moments())

    nearest = noise(None, Method.RTN)
    best, parts = noise(SeenInputs.whole(whole), Method.GPTQ), noise(moments(rows), Method.GPTQ)
    assert best < parts < nearest


def test_the_plan_says_which_weights_are_solved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxq.weights.seen_inputs.MOST_BYTES", 200_000)
    text = "g (float[n, 256] x) => (float[n, 8] y) { h = Tanh(x)  y = MatMul(h, w) }"
    made = onnxq.quantize_weights(parsed(text, {"w": normal(256, 8)}), {"x": normal(64, 256)})
    assert made.verdict is not None
    (note,) = (note for note in made.verdict.notes if "in parts" in note)  # beside one on speed
    assert "1 weights have so many inputs that gptq solves them in parts, each by itself" in note
    assert "('MatMul_y': 256 inputs, 2 parts)" in note
