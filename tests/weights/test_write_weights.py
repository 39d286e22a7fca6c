"""A model with weights in groups."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.errors import ModelError
from onnxq.ort import runtime
from onnxq.ort.runtime import Optimization
from onnxq.qparams.group_spec import GroupSpec, Method, Scheme
from onnxq.weights.find_integers import find_integers
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile
from onnxq.weights.weight_plan import WeightRequest
from onnxq.weights.write_weights import FLOAT_ACCURACY, WeightFormat, misread, write_weights
from tests.dynamic_models import normal, op_types, parsed, run
from tests.weights.block_models import canonical

SHARED = parsed(
    """g (float[n, 32] x) => (float[n, 32] y) {
        h = MatMul(x, w)
        r = Relu(h)
        y = MatMul(r, w)
    }""",
    {"w": normal(32, 32)},
)


def test_readers_of_one_weight_share_its_integers() -> None:
    model = canonical(SHARED)
    plan = plan_weights(model, WeightRequest())
    made = write_weights(
        model, plan, find_integers(model, plan, (), QuantizedWeightsFile()), FLOAT_ACCURACY
    )
    assert op_types(made).count("MatMulNBits") == 2
    assert sorted(made.graph.initializers) == ["w_integers", "w_scales", "w_zero_points"]
    assert "w" in model.graph.initializers, "the float model stays as it is"
    x = normal(3, 32)
    left = run(made, {"x": x}) - run(model, {"x": x})
    assert np.square(left).mean() < 0.02 * np.square(run(model, {"x": x})).mean()


@pytest.mark.parametrize("written_as", WeightFormat)
def test_a_weight_that_is_an_output_too_stays_beside_its_integers(written_as: WeightFormat) -> None:
    text = "g (float[n, 32] x) => (float[n, 32] y, float[32, 32] w) { y = MatMul(x, w) }"
    source = parsed(text, {"w": normal(32, 32)})
    made = onnxq.quantize_weights(source, method="rtn", format=written_as)
    assert {"w", "w_integers"} <= made.graph.initializers.keys()
    x = {"x": normal(3, 32)}
    with runtime.open_session(made, threads=1) as session:
        np.testing.assert_array_equal(session.run(x, ["w"])[0], normal(32, 32))
    onnxq.cross_check(made, x).check()


TWO = parsed(
    """g (float[n, 40] x) => (float[n, 8] y) {
        h = MatMul(x, w)
        y = Gemm<transB = 1>(h, v, b)
    }""",
    {"w": normal(40, 24), "v": normal(8, 24), "b": normal(8)},
)


@pytest.mark.parametrize("scheme", [Scheme.AFFINE, Scheme.SYMMETRIC])
@pytest.mark.parametrize("bits", [4, 8])
def test_both_forms_stand_for_the_same_weights(bits: int, scheme: Scheme) -> None:
    model = canonical(TWO)
    plan = plan_weights(model, WeightRequest(GroupSpec(bits, 16, scheme), Method.RTN))
    integers = find_integers(model, plan, (), QuantizedWeightsFile())
    nbits = write_weights(model, plan, integers, FLOAT_ACCURACY)
    plain = write_weights(model, plan, integers, FLOAT_ACCURACY, WeightFormat.QDQ)
    assert op_types(plain).count("DequantizeLinear") == 2
    assert not [node for node in plain.graph.all_nodes() if node.domain]
    x = {"x": normal(5, 40)}
    wanted = run(nbits, x)
    # ONNX Runtime rounds activations of this form to int8 in MatMulNBits: 1% of the largest result
    np.testing.assert_allclose(run(plain, x), wanted, rtol=0, atol=0.03 * np.abs(wanted).max())


def test_two_bits_that_onnxruntime_would_misread_stay_float_with_the_reason() -> None:
    """The misreading is real: the result is not that of ONNX Runtime's own DequantizeLinear."""
    text = """g (float[n, 32] x) => (float[n, 6] y) { h = MatMul(x, w) y = MatMul(h, v) }"""
    source = parsed(text, {"w": normal(32, 8), "v": normal(8, 6)})
    made = onnxq.quantize_weights(source, bits=2, method="rtn", format="qdq")
    assert [n.name for n in made.graph if n.op_type == "DequantizeLinear"] == [
        "MatMul_h_dequantize"
    ]
    onnxq.cross_check(made, {"x": normal(5, 32)}).check()

    model = canonical(source)
    plan = plan_weights(model, WeightRequest(GroupSpec(2, 16), Method.RTN))
    assert list(misread(plan)) == ["MatMul_y"]
    integers = find_integers(model, plan, (), QuantizedWeightsFile())
    spoilt = write_weights(model, plan, integers, FLOAT_ACCURACY, WeightFormat.QDQ)
    x = {"x": normal(5, 32)}
    with runtime.open_session(spoilt, threads=1, optimization=Optimization.NONE) as plain:
        wanted = np.asarray(plain.run(x)[0], np.float32)
    far = np.abs(run(spoilt, x) - wanted).max()
    assert far > 0.1 * np.abs(wanted).max(), "mended in ONNX Runtime: is_scrambled can go"


def test_a_model_whose_every_layer_would_be_misread_is_refused() -> None:
    text = "g (float[n, 32] x) => (float[n, 6] y) { y = MatMul(x, w) }"
    source = parsed(text, {"w": normal(32, 6)})
    with pytest.raises(ModelError, match=r"'MatMul_y': ONNX Runtime misreads 2-bit integers"):
        onnxq.quantize_weights(source, bits=2, method="rtn", format="qdq")
