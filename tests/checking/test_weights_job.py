"""The job of storing weights in groups."""

from __future__ import annotations

import pytest

from onnxq.checking.check import Check
from onnxq.checking.weights_job import WeightsJob, carry_out_weights
from onnxq.errors import QConfigError, VerificationError
from onnxq.qparams.group_spec import Method
from onnxq.quantized.verdict import InputSource
from onnxq.samples import Samples
from onnxq.weights.weight_plan import WeightRequest
from tests.dynamic_models import normal, parsed
from tests.weights.block_models import canonical

MODEL = canonical(
    parsed("g (float[n, 32] x) => (float[n, 8] y) { y = MatMul(x, w) }", {"w": normal(32, 8)})
)
SAMPLES = {"x": normal(64, 32, seed=5)}


def test_samples_of_the_method_are_what_it_is_tried_on() -> None:
    made = carry_out_weights(WeightsJob(MODEL, WeightRequest(method=Method.GPTQ), Samples(SAMPLES)))
    assert made.model.verdict is not None
    assert made.model.verdict.input_source is InputSource.CALIBRATION


def test_a_method_without_samples_is_tried_on_made_up_inputs() -> None:
    made = carry_out_weights(WeightsJob(MODEL, WeightRequest(method=Method.RTN)))
    assert made.model.verdict is not None
    assert made.model.verdict.input_source is InputSource.MADE_UP


def test_a_bound_without_samples_is_refused() -> None:
    with pytest.raises(QConfigError, match="needs samples"):
        carry_out_weights(
            WeightsJob(MODEL, WeightRequest(method=Method.RTN), check=Check(min_sqnr_db=10))
        )


def test_a_broken_bound_is_an_error() -> None:
    job = WeightsJob(
        MODEL, WeightRequest(method=Method.GPTQ), Samples(SAMPLES), check=Check(min_sqnr_db=90)
    )
    with pytest.raises(VerificationError):
        carry_out_weights(job)


def test_no_check_is_no_verdict() -> None:
    job = WeightsJob(MODEL, WeightRequest(method=Method.RTN), check=Check.NONE)
    assert carry_out_weights(job).model.verdict is None
