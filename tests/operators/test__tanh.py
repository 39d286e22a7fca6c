from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from onnxq.operators._tanh import tanh
from tests.operators.builder import session


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
