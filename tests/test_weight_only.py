"""Weights in groups as one call."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from tests.dynamic_models import normal, op_types, parsed

MODEL = parsed("g (float[n, 32] x) => (float[n, 8] y) { y = MatMul(x, w) }", {"w": normal(32, 8)})
SAMPLES = {"x": normal(64, 32, seed=5)}


def test_matmuls_have_weights_in_blocks() -> None:
    made = onnxq.quantize_weights(MODEL)
    assert op_types(made) == ["MatMulNBits"]
    (matmul,) = made.graph
    attributes = {name: a.value for name, a in matmul.attributes.items()}
    assert attributes == {"K": 32, "N": 8, "bits": 4, "block_size": 32, "accuracy_level": 4}


@pytest.mark.filterwarnings("ignore:output")  # 2 bits of few numbers: 10 dB
def test_samples_make_it_better() -> None:
    blind, seeing = (
        onnxq.quantize_weights(MODEL, samples, bits=2, check=SAMPLES, accuracy_level=0).verdict
        for samples in (None, SAMPLES)
    )
    assert blind is not None
    assert seeing is not None
    assert seeing.outputs[0].sqnr_db > blind.outputs[0].sqnr_db  # type: ignore[operator]


def test_a_method_that_sees_data_wants_samples() -> None:
    with pytest.raises(CalibrationError, match="ask for 'hqq' or 'rtn'"):
        onnxq.quantize_weights(MODEL, method="gptq")


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'gptq'"):
        onnxq.quantize_weights(MODEL, SAMPLES, method="gtpq")


def test_three_bits_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="2, 4 or 8"):
        onnxq.quantize_weights(MODEL, bits=3)


def test_another_accuracy_level_is_refused() -> None:
    with pytest.raises(QConfigError, match="accuracy_level"):
        onnxq.quantize_weights(MODEL, accuracy_level=2)


def test_real_zero_points_are_refused_where_they_have_to_be_integers() -> None:
    with pytest.raises(QConfigError, match="zero points of DequantizeLinear are integers"):
        onnxq.quantize_weights(MODEL, scheme="real", format="qdq")
