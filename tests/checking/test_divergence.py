"""KL divergence of logits: its value, its error, and where the verdict shows it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import onnxq
from onnxq.checking.divergence import Divergence
from onnxq.errors import CalibrationError
from onnxq.metrics import as_samples
from onnxq.tuning.scoring.metric import KL, TOP1
from onnxq.tuning.scoring.paired_outputs import PairedOutputs
from tests.tiny_decoder import tiny_decoder

X = np.random.default_rng(0).normal(size=(5, 7, 11)).astype(np.float32)
Y = X + np.random.default_rng(1).normal(size=X.shape).astype(np.float32) / 4


def of(x: np.ndarray, y: np.ndarray) -> Divergence:
    found = Divergence()
    found.update(x, y)
    return found


def test_a_distribution_beside_itself_has_none_wherever_its_logits_lie() -> None:
    assert of(X, X + 100).bits == pytest.approx(0, abs=1e-6)


def test_two_tokens_have_the_bits_of_the_formula() -> None:
    p, q = np.array([0.75, 0.25]), np.array([0.5, 0.5])
    wanted = 0.75 * math.log2(1.5) + 0.25 * math.log2(0.5)
    found = of(np.log(p)[np.newaxis, np.newaxis], np.log(q)[np.newaxis, np.newaxis])
    assert found.bits == pytest.approx(wanted)
    assert found.error is None  # of one token


def test_the_error_is_that_of_the_mean_over_rows() -> None:
    rows = [of(x[np.newaxis], y[np.newaxis]).bits for x, y in zip(X, Y, strict=True)]
    assert of(X, Y).bits == pytest.approx(np.mean(rows))  # type: ignore[arg-type]  # none is None
    assert of(X, Y).error == pytest.approx(np.std(rows, ddof=1) / math.sqrt(len(rows)))  # type: ignore[arg-type]


def test_batches_add_up_to_the_whole() -> None:
    parts = of(X[:2], Y[:2])
    parts.add(of(X[2:], Y[2:]))
    whole = of(X, Y)
    assert (parts.bits, parts.error) == pytest.approx((whole.bits, whole.error))
    assert Divergence().bits is None


@pytest.mark.filterwarnings("ignore:output 'logits' keeps")
def test_the_verdict_on_a_language_model_has_it_and_its_top1() -> None:
    model = tiny_decoder()
    samples = as_samples(model, np.random.default_rng(2).integers(0, 256, (6, 12)))
    made = [
        onnxq.quantize_weights(model, bits=bits, check=onnxq.Check(samples)).verdict
        for bits in (2, 8)
    ]
    coarse, fine = (v.outputs[0] for v in made if v is not None)
    assert coarse.name == fine.name == "logits"
    assert coarse.kl_bits is not None
    assert fine.kl_bits is not None
    assert fine.kl_error is not None
    assert 0 < fine.kl_bits < coarse.kl_bits / 10
    assert fine.top1_agreement is not None
    assert "KL " in str(fine)
    assert "bits per token; same top-1 in" in str(fine)


def test_tune_ranks_by_it_and_says_where_there_is_none() -> None:
    assert KL.float_value == 0.0
    assert TOP1.float_value == 1.0
    outputs = PairedOutputs()
    with pytest.raises(CalibrationError, match="no output 'logits' of shape"):
        _ = outputs.kl_bits
