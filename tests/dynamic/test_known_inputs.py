"""Inputs of MatMuls as the model alone tells them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq import quantize_weights
from onnxq.dynamic.known_inputs import Known, power_behind_norm, raw_tensors
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.weights.solve import Nearest, prepared
from tests.weights.block_models import weight


def _model() -> ir.Model:
    return ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[N, 3, 4] x) => (float[N, 12] y)
        <float[1] mean = {0.5}, int64[2] shape = {-1, 12}, float[12] one =
          {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> {
            centred = Sub (x, mean)
            rows = Reshape (centred, shape)
            normed = LayerNormalization <axis = -1> (rows, one)
            y = Add (normed, rows)
        }
        """
    )


def test_what_is_moved_and_shifted_is_raw_and_what_is_normalized_is_not() -> None:
    raw = raw_tensors(_model())
    assert {"x", "centred", "rows"} <= raw
    assert not {"normed", "y"} & raw


def test_sums_of_errors_are_smaller_where_inputs_are_alike() -> None:
    w, spec = weight(64, 64), GroupSpec(4, 32)
    apart, together = (
        np.square((Nearest(alike=a)(w, spec).dequantized - w).sum(1)).mean() for a in (0.0, 1.0)
    )
    assert together < apart / 2


def test_behind_a_norm_channels_count_by_the_root_of_gain_and_shift() -> None:
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 23]>
        g (float[N, 2] x) => (float[N, 2] y, float[N, 2] z, float[N, 2] u)
        <float[2] gain = {3, 1}, float[2] shift = {4, 0}> {
            y = LayerNormalization <axis = -1> (x, gain, shift)
            z = RMSNormalization <axis = -1> (x, gain)
            u = Relu (z)
        }
        """
    )
    behind = [power_behind_norm(value) for value in (*model.graph.inputs, *model.graph.outputs)]
    assert behind[0] is None
    assert behind[3] is None
    found = [list(power) for power in behind[1:3] if power is not None]
    assert found[0] == pytest.approx([5 / 3, 1 / 3], rel=1e-6)
    assert found[1] == pytest.approx([3 / 2, 1 / 2], rel=1e-6)


def test_large_channels_have_smaller_errors_by_hqq_and_not_by_rtn() -> None:
    w, spec = weight(64, 64), GroupSpec(4, 32)
    power = np.where(np.arange(64) % 4, 0.1, 3.7).astype(np.float32)
    known = Known(power=power)
    rtn, hqq = (
        np.square((prepared(m, known=known)(w, spec).dequantized - w) * np.sqrt(power)).sum()
        for m in (Method.RTN, Method.HQQ)
    )
    assert hqq < 0.9 * rtn


def test_integers_of_a_model_heed_its_norms() -> None:
    generator = np.random.default_rng(0)
    w = generator.standard_normal((64, 16)).astype(np.float32)
    gain = np.where(np.arange(64) % 4, 0.1, 2.0).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("RMSNormalization", ["x", "gain"], ["n"], axis=-1),
            helper.make_node("MatMul", ["n", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16])],
        [numpy_helper.from_array(gain, "gain"), numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    x = {"x": generator.standard_normal((32, 64)).astype(np.float32)}
    found = [quantize_weights(model, method=m, check=x).verdict for m in (Method.RTN, Method.HQQ)]
    rtn, hqq = (v.outputs[0].sqnr_db or 0.0 for v in found if v is not None)
    assert hqq > rtn + 0.5
