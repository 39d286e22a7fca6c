from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from models.genai_decoder import load_genai_decoder
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import CalibrationError
from onnxq.graph.saving import saved_bytes
from onnxq.metrics.bits import (
    Bits,
    as_samples,
    bits_in_windows,
    bits_of,
    bits_with_cache,
    bytes_of,
    minus_bits,
    windows,
)
from onnxq.ort import runtime
from onnxq.times import costs_of
from tests.this_machine import adds_exactly
from tests.tiny_decoder import tiny_decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array

MODELS = Path(__file__).resolve().parents[2] / "models"
ROWS = windows(np.frombuffer(b"It is a truth universally acknowledged, that a", np.uint8), 15)


def test_bits_are_minus_the_logarithm_of_the_share() -> None:
    logits = np.log(np.array([[[1, 1, 2], [4, 2, 2]]], np.float32))
    np.testing.assert_allclose(bits_of(logits, np.array([[2, 1]])), [[1, 2]], atol=1e-6)
    # far logits neither overflow nor vanish
    far = np.array([[[1e4, 0.0]]], np.float32)
    assert bits_of(far, np.array([[1]]))[0, 0] == pytest.approx(1e4 / math.log(2))


def test_equal_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    assert bits_of(np.zeros((2, 3, 256)), np.zeros((2, 3), np.int64)).tolist() == [[8.0] * 3] * 2


def test_windows_and_cache_give_the_same_bits() -> None:
    whole = bits_in_windows(tiny_decoder(), ROWS, threads=1)
    assert whole.tokens == 3 * 14
    for step in (1, 4):
        cached = bits_with_cache(tiny_decoder(), ROWS, step, threads=1)
        assert cached.tokens == whole.tokens
        assert abs(cached.per_token - whole.per_token) < 1e-4


def test_bits_add_up() -> None:
    assert (Bits(3, 1) + Bits(1, 3)).per_token == 1


def test_the_metric_of_tuning_is_minus_the_bits_of_what_is_not_hidden() -> None:
    samples = as_samples(tiny_decoder(), ROWS)
    with runtime.open_session(tiny_decoder(), threads=1) as session:

        def run(batch: Mapping[str, Array]) -> Mapping[str, Array]:
            return dict(zip(session.outputs, session.run(batch), strict=True))

        whole = bits_in_windows(tiny_decoder(), ROWS, threads=1)
        assert minus_bits(run, [samples]) == pytest.approx(-whole.per_token, rel=1e-9)
        hidden = {**samples, "attention_mask": samples["attention_mask"].copy()}
        hidden["attention_mask"][:, 10:] = 0
        short = {**samples, "input_ids": ROWS[:, :10]}
        logits = run(samples)
        wanted = bits_of(logits["logits"][:, :9], short["input_ids"][:, 1:]).mean()
        assert minus_bits(lambda _: logits, [hidden]) == pytest.approx(-wanted, rel=1e-9)


def test_what_bits_cannot_be_counted_of_is_said() -> None:
    with pytest.raises(CalibrationError, match=r"tokens reach from 1 to 9; .* logits for 4"):
        bits_of(np.zeros((1, 2, 4)), np.array([[1, 9]]))
    with pytest.raises(CalibrationError, match="not finite"):
        bits_of(np.full((1, 1, 4), np.nan), np.array([[1]]))
    with pytest.raises(CalibrationError, match="the samples hold x, the model gives y"):
        minus_bits(lambda _: {"y": np.zeros(1)}, [{"x": np.zeros(1)}])
    with pytest.raises(CalibrationError, match="no token that another one comes before"):
        minus_bits(lambda _: {}, [])
    with pytest.raises(CalibrationError, match="step is 0; wanted 1"):
        bits_with_cache(tiny_decoder(), ROWS, 0)


def test_int8_costs_few_bits_more_than_float() -> None:
    made = onnxq.quantize_dynamic(tiny_decoder(), objective="size")
    exact, rounded = (bits_in_windows(m, ROWS, threads=1) for m in (tiny_decoder(), made))
    assert abs(rounded.per_token - exact.per_token) < 0.2


@pytest.mark.nightly  # a search of 3.2 million parameters
@adds_exactly
def test_a_search_by_bits_reaches_its_goal_on_text_that_chose_nothing() -> None:
    """The smallest file, so that no clock decides."""
    decoder = load_genai_decoder()
    seen, held_out = (
        as_samples(decoder, windows(bytes_of(MODELS / f"{name}.txt"), 128)[::rows][:32])
        for name, rows in (("persuasion", 100), ("northanger_abbey", 90))
    )
    found = onnxq.tune(
        decoder,
        onnxq.Samples(seen, batch_size=4),
        check=held_out,
        goal=onnxq.Goal(max_drop=0.01, max_runs=12, objective=Objective.SIZE, metric="bits"),
        target="x86-vnni",
        costs=costs_of("x86-vnni"),
    )
    apart = found.held_apart
    assert not found.missed
    assert -3 < apart.float_metric < -1.5  # bits per byte of a model that knows its language
    assert apart.float_metric - apart.score.metric <= 0.01
    assert found.score.size_bytes < 0.3 * saved_bytes(decoder)


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(10),
        np.arange(10).reshape(10, 1),
        np.zeros((0, 8), np.int64),
        np.zeros((2, 8)),
        [[1, 2, 3]],
        None,
    ],
    ids=["a vector", "a token a row", "no row", "floats", "a list", "None"],
)
def test_what_is_no_window_is_refused_in_words(rows: Array) -> None:
    for bits in (bits_in_windows, bits_with_cache):
        with pytest.raises(CalibrationError, match=r"wanted integers of shape \(rows, tokens\)"):
            bits(tiny_decoder(), rows)


def test_logits_of_other_shapes_are_refused() -> None:
    with pytest.raises(CalibrationError, match=r"logits \(2, 3, 4\) for tokens \(2, 5\)"):
        bits_of(np.zeros((2, 3, 4)), np.zeros((2, 5), np.int64))


def test_samples_of_one_token_have_nothing_to_predict() -> None:
    def run(batch: Mapping[str, Array]) -> dict[str, Array]:
        assert batch
        return {"logits": np.zeros((2, 1, 256), np.float32)}

    with pytest.raises(CalibrationError, match="no token that another one comes before"):
        minus_bits(run, [{"input_ids": np.zeros((2, 1), np.int64)}])
