"""Improvements in the flow: their order follows from what they change, not from the list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq.errors import CalibrationError
from onnxq.improve import improve_weights, wanted
from onnxq.improve.carry_out import check_samples
from onnxq.samples import open_samples
from tests.examples import ALL_INTEGERS, images, network

if TYPE_CHECKING:
    from onnxq.quantized.outcome import Outcome

FOUR_BITS = ALL_INTEGERS.with_overrides(
    ["global={weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7}}"]
)
SAMPLES = {"x": images(64)}


def test_models_come_before_weights_and_weights_before_biases() -> None:
    names = ("bias", "round", "smooth", "equalize")
    assert [i.name for i in wanted(names)] == ["smooth", "equalize", "round", "bias"]
    assert [i.name for i in wanted(("round", "bias"))] == ["round", "bias"]


def outcomes(*names: str) -> tuple[Outcome, ...]:
    prepared = onnxq.prepare(network(), FOUR_BITS.set_improve(names))
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, SAMPLES))
    return improve_weights(prepared, plan, open_samples(SAMPLES, prepared.inputs)).outcomes


def test_a_bias_asked_for_ahead_of_round_cannot_make_round_withdraw() -> None:
    alone, both = outcomes("round"), outcomes("bias", "round")
    assert both[: len(alone)] == alone  # it starts from the same weights and biases
    assert {o.improvement for o in both[len(alone) :]} == {"bias"}


def test_improvements_without_samples_are_refused() -> None:
    check_samples((), None)
    with pytest.raises(CalibrationError, match="need the samples"):
        check_samples(("bias",), None)
