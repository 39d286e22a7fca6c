from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from onnxq.dtypes import INT4, INT8, UINT8
from onnxq.graph.edit import FreeNames, new_constant
from onnxq.ort.runtime import Optimization, open_session
from onnxq.qdq.fuse import fuse
from onnxq.qdq.read import qparams_of
from onnxq.qdq.write import (
    clip_integers,
    constants_of,
    feed,
    granularity_attributes,
    graph_qparams_of,
    new_graph_qparams,
    new_integers,
    quantize_behind,
    shifted_constant,
)
from onnxq.qparams import PerBlock, PerChannel, QParams, per_tensor
from tests.examples import tensor_of
from tests.op_types import op_types

P = per_tensor(0.5, 3, UINT8)
CHANNELS = QParams(np.ones(3, "f"), np.zeros(3, np.int8), INT8, PerChannel(1))
BLOCKS = QParams(np.ones((4, 3), "f"), np.zeros((4, 3), np.int8), INT4, PerBlock(0, 16))


@pytest.fixture
def model() -> ir.Model:
    return ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,3] x) => (float[4,3] y, float[4,3] z) { y = Relu(x) z = Neg(y) }"""
    )


@pytest.mark.parametrize(
    ("qparams", "wanted"),
    [(P, {}), (CHANNELS, {"axis": 1}), (BLOCKS, {"axis": 0, "block_size": 16})],
    ids=["tensor", "channel", "block"],
)
def test_attributes_are_those_of_the_granularity(qparams: QParams, wanted: dict[str, int]) -> None:
    assert granularity_attributes(qparams) == wanted


@pytest.mark.parametrize("qparams", [P, CHANNELS, BLOCKS], ids=["tensor", "channel", "block"])
def test_what_is_written_is_read_again(model: ir.Model, qparams: QParams) -> None:
    relu = model.graph.node(0)
    graph_qparams = new_graph_qparams(constants_of(relu, FreeNames(model)), "x", qparams)
    x = model.graph.inputs[0]
    quantizer = graph_qparams.quantize(x, "q", "integers")
    back = graph_qparams.dequantize(quantizer.outputs[0], "dq", "real")
    assert qparams_of(quantizer) == qparams_of(back) == qparams
    assert graph_qparams_of(quantizer, qparams) == graph_qparams_of(back, qparams) == graph_qparams
    assert (quantizer.outputs[0].name, back.outputs[0].name) == ("integers", "real")
    assert back.outputs[0].type == x.type
    assert back.outputs[0].shape == x.shape


def test_narrow_zero_points_are_stored_in_their_own_type(model: ir.Model) -> None:
    graph_qparams = new_graph_qparams(
        constants_of(model.graph.node(0), FreeNames(model)), "x", BLOCKS
    )
    assert graph_qparams.zero_point is not None
    assert tensor_of(graph_qparams.zero_point).numpy().dtype == ml_dtypes.int4


def test_without_zero_point_the_type_of_integers_is_said_from_opset_21_on(model: ir.Model) -> None:
    x = model.graph.inputs[0]
    whole = new_graph_qparams(
        constants_of(model.graph.node(0), FreeNames(model)), "x", per_tensor(0.5, 0, INT8)
    )
    graph_qparams = dataclasses.replace(whole, zero_point=None)
    quantizer = graph_qparams.quantize(x, "q")
    assert quantizer.attributes.get_int("output_dtype") == ir.DataType.INT8
    back = graph_qparams.dequantize(quantizer.outputs[0], "dq")
    qparams = qparams_of(back)
    assert isinstance(qparams, QParams)
    back.version = 20
    assert graph_qparams_of(back, qparams).integers == ir.DataType.UINT8
    back.version = 21
    assert graph_qparams_of(back, qparams).integers == ir.DataType.INT8


@pytest.mark.parametrize("opset", [13, 20, 21, 23])
def test_what_moves_down_without_zero_point_has_the_integers_that_onnx_runtime_gives(
    opset: int,
) -> None:
    """Below opset 21, that of int8 becomes uint8 behind what it moved past: negatives become 0."""
    model = ir.from_onnx_text(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[1,2,4] x) => (float[1,2,4] y)
        <float s = {{0.5}}, int8 z = {{0}}, int64[3] shape = {{1,2,4}}> {{
            q = QuantizeLinear(x, s, z)  t = Transpose<perm=[0,1,2]>(q)
            d = DequantizeLinear(t, s)  r = Reshape(d, shape)  y = Sigmoid(r) }}"""
    )
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 2, 4)
    fused = fuse(model).model
    with (
        open_session(model) as session,
        open_session(fused, optimization=Optimization.NONE) as plain,
    ):
        wanted, got = (np.asarray(one.run({"x": x})[0], np.float32) for one in (session, plain))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_what_is_quantized_behind_a_node_keeps_its_name_where_it_is_an_output(
    model: ir.Model,
) -> None:
    names = FreeNames(model)
    y = model.graph.node(0).outputs[0]
    real = quantize_behind(
        y, new_graph_qparams(constants_of(model.graph.node(0), names), "y", P), names
    )
    assert op_types(model) == ["Relu", "QuantizeLinear", "DequantizeLinear", "Neg"]
    assert (y.name, real.name) == ("y_moved", "y")
    assert model.graph.outputs[0] is real
    assert model.graph.node(3).inputs[0] is real


def test_only_the_uses_that_are_named_read_what_is_quantized(model: ir.Model) -> None:
    names = FreeNames(model)
    relu, neg = model.graph
    graph_qparams = new_graph_qparams(constants_of(relu, names), "y", P)
    real = quantize_behind(relu.outputs[0], graph_qparams, names, [(neg, 0)])
    assert real.name == "y_dequantized"
    assert neg.inputs[0] is real
    assert model.graph.outputs[0] is relu.outputs[0]


def test_constant_integers_feed_a_slot(model: ir.Model) -> None:
    neg, names = model.graph.node(1), FreeNames(model)
    integers, graph_qparams = new_integers(
        constants_of(neg, names), "w", np.ones((4, 3), np.int8), CHANNELS
    )
    feed(neg, 0, graph_qparams.dequantize(integers, "w_dequantize", "w_dequantized"))
    assert list(model.graph.initializers) == ["w_quantized", "w_scale", "w_zero_point"]
    assert op_types(model) == ["Relu", "DequantizeLinear", "Neg"]


def test_a_clip_on_integers_has_constants_of_their_type_as_bounds(model: ir.Model) -> None:
    relu = model.graph.node(0)
    integers = new_constant(relu, "integers", np.zeros(2, np.uint8))
    clip = clip_integers(
        integers, UINT8, (3, 15), "y_integer", constants_of(relu, FreeNames(model))
    )
    low, high = clip.inputs[1:]
    assert low is not None
    assert high is not None
    assert (low.name, high.name) == ("y_integer_min", "y_integer_max")
    assert tensor_of(high).numpy() == 15
    assert clip.outputs[0].dtype == ir.DataType.UINT8


def test_a_shifted_constant_stands_beside_the_old_one(model: ir.Model) -> None:
    old = new_constant(model.graph.node(0), "z", np.array(-128, np.int8))
    new = shifted_constant(old, FreeNames(model))
    assert list(model.graph.initializers) == ["z", "z_uint8"]
    assert new.dtype == ir.DataType.UINT8
    assert tensor_of(new).numpy() == 0
