"""Improvements in the flow: their order follows from what they change, not from the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import onnxq
from onnxq.errors import CalibrationError, OnnxqError, QConfigError, UnsupportedError
from onnxq.qconfig import default_qconfig_mapping
from onnxq.samples import open_samples
from onnxq.weights import Improved, WeightAlgorithm, improve_weights, register, wanted
from onnxq.weights.algorithm import registry
from onnxq.weights.carry_out import check_samples
from tests.examples import ALL_INTEGERS, images, network

if TYPE_CHECKING:
    from onnxq.quantized.outcome import Outcome
    from onnxq.samples import Batches
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared

FOUR_BITS = ALL_INTEGERS.with_overrides(
    ["global={weight: {observer: NarrowRangeObserver, dtype: int4, quant_max: 7}}"]
)
SAMPLES = {"x": images(64)}


def test_models_come_before_weights_and_weights_before_biases() -> None:
    names = ("bias", "round", "smooth")
    assert [i.name for i in wanted(names)] == ["smooth", "round", "bias"]
    assert [i.name for i in wanted(("round", "bias"))] == ["round", "bias"]


def outcomes(*names: str) -> tuple[Outcome, ...]:
    prepared = onnxq.prepare(network(), FOUR_BITS.set_improve(names))
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, SAMPLES))
    return improve_weights(prepared, plan, open_samples(SAMPLES, prepared.inputs)).outcomes


def test_a_bias_asked_for_ahead_of_round_cannot_make_round_withdraw() -> None:
    alone, both = outcomes("round"), outcomes("bias", "round")
    assert both[: len(alone)] == alone  # it starts from the same weights and biases
    assert {o.algorithm for o in both[len(alone) :]} == {"bias"}


def test_improvements_without_samples_are_refused() -> None:
    check_samples((), None)
    with pytest.raises(CalibrationError, match="need the samples"):
        check_samples(("bias",), None)


def own(result: object) -> type[WeightAlgorithm]:
    """An algorithm of a user's own that gives that, or raises it."""

    class Own(WeightAlgorithm):
        name = "own"

        def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
            assert plan.model_hash == prepared.model_hash
            assert samples.where
            if isinstance(result, Exception):
                raise result
            return cast("Improved", result)

    return Own


@pytest.mark.parametrize(
    ("result", "error", "said"),
    [
        (KeyError("mine"), UnsupportedError, "fails: KeyError: 'mine'. Repair it"),
        (CalibrationError("too few"), CalibrationError, "^too few$"),
        ("a plan", QConfigError, r"gives a str; wanted an onnxq\.weights\.Improved"),
    ],
)
def test_an_improvement_of_ones_own_that_fails_is_named(
    result: object, error: type[OnnxqError], said: str
) -> None:
    register(own(result))
    try:
        with pytest.raises(error, match=said) as raised:
            onnxq.quantize(
                network(), SAMPLES, qconfig=default_qconfig_mapping().set_improve(["own"])
            )
        assert isinstance(result, CalibrationError) or f"'own' (module {__name__})" in str(
            raised.value
        )
    finally:
        del registry["own"]


def test_an_improvement_without_a_name_is_refused() -> None:
    nameless = own("")
    del nameless.name
    for given in (nameless, cast("Any", 5)):
        with pytest.raises(TypeError, match="has no name; wanted a class with name ="):
            register(given)
