from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

from onnxq.operators._logistic import logistic, tanh
from tests.operators import builder
from tests.operators.builder import session


@pytest.mark.parametrize("width", [0.01, 1.0, 5.0, 30.0])
def test_logistic_equals_onnx_runtime_to_the_bit(width: float) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>g (float[N] x) => (float[N] y) { y = Sigmoid(x) }'
    )
    x = np.random.default_rng(0).standard_normal(100_001).astype(np.float32) * np.float32(width)
    (y,) = builder.session(model).run(None, {"x": x})
    assert np.array_equal(logistic(x), y)


def test_every_float_near_min_and_max_is_onnx_runtimes() -> None:
    """A net found it: ONNX Runtime's kernel may return 1 + 2^-23, but nothing below 0."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>g (float[N] x) => (float[N] y) { y = Sigmoid(x) }'
    )
    first, last = (np.float32(x).view(np.int32) for x in (17.7, 18.1))
    high = np.arange(first, last, dtype=np.int32).view(np.float32)
    x = np.concatenate([high, -high])
    (y,) = builder.session(model).run(None, {"x": x})
    assert y.max() > 1
    assert np.array_equal(logistic(x), y)


def test_far_values_are_0_and_1() -> None:
    ends = logistic(np.array([-np.inf, -1e30, 1e30, np.inf], np.float32))
    assert ends.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_a_quotient_next_to_a_half_is_rounded_as_onnx_runtime_does() -> None:
    """benchmarks/exactness.py found it: the exact quotient is 103.4999903, ORT's is above."""
    x = np.float32(0.031259406358003616) * np.float32(-44)
    quotient = logistic(np.asarray([x], np.float32)) / np.float32(0.001949242316186428)
    assert np.rint(quotient) == 104


def test_it_equals_onnx_runtime_to_the_bit() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([s * random.standard_normal(5001) for s in (0.1, 1, 5)]).astype(np.float32)
    x[:4] = (0, -0.0, 1e30, -1e30)
    node = helper.make_node("Tanh", ["x"], ["y"])
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (wanted,) = session(model).run(None, {"x": x})
    assert np.array_equal(tanh(x), wanted)


def test_it_is_the_hyperbolic_tangent_up_to_two_ulp_of_one() -> None:
    x = np.linspace(-12, 12, 4001, dtype=np.float32)
    assert np.abs(tanh(x) - np.tanh(x.astype(np.float64))).max() <= 2**-22
