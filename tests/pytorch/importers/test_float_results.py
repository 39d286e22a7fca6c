from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.errors import UnsupportedError
from onnxq.ort.runtime import Optimization, open_session
from onnxq.pytorch.importers.float_results import FloatResults, treat_float_results
from tests.examples import as_ir, model

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array

X = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)


def conv(w_zero_point: Array) -> onnx.ModelProto:
    """x -> Q -> DQ -> Conv of integers with a bias -> y; the zero point of x is left out."""
    rank = w_zero_point.ndim
    constants: dict[str, Array] = {
        "s": np.array(0.02, np.float32),
        "w_integers": np.random.default_rng(1).integers(-100, 100, (3, 2, 3, 3)).astype(np.int8),
        "w_s": np.full((3,) * rank, 0.01, np.float32),
        "w_z": w_zero_point,
        "b": np.array([1, -2, 3], np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], "d"),
        helper.make_node("DequantizeLinear", ["w_integers", "w_s", "w_z"], ["w"], "dw", axis=0),
        helper.make_node("Conv", ["d", "w", "b"], ["y"], "conv"),
    ]
    return model(nodes, constants, {"x": X.shape}, opset=21)


def computed(made: ir.Model) -> Array:
    with open_session(made, optimization=Optimization.NONE) as session:
        return session.run({"x": X})[0]


def test_zero_points_of_the_weight_and_none_of_the_input_reach_conv_integer() -> None:
    made = as_ir(conv(np.array(5, np.int8)))
    before = computed(made)
    treat_float_results(made, FloatResults.INTEGER, {})
    assert "ConvInteger" in [node.op_type for node in made.graph]
    np.testing.assert_allclose(
        np.asarray(computed(made), np.float32), np.asarray(before, np.float32), rtol=1e-5, atol=1e-5
    )


def test_zero_points_that_differ_are_refused() -> None:
    made = as_ir(conv(np.array([0, 5, 0], np.int8)))
    with pytest.raises(UnsupportedError, match="'conv': its weight has a zero point per channel"):
        treat_float_results(made, FloatResults.INTEGER, {})
