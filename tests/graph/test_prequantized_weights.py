from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxq.dtypes import INT8
from onnxq.graph.canonical import canonicalize
from onnxq.graph.folded import DEEPEST
from onnxq.graph.prequantized_weights import (
    find_prequantized,
    is_prequantized,
    prequantized_qparams,
    stored_bits,
)
from onnxq.qparams import PerChannel, PerTensor
from tests import stored_weights as given


def weight_of(model: onnx.ModelProto, op_type: str = "MatMul") -> ir.Value:
    """The weight of the first such node of the canonical model."""
    graph = canonicalize(ir.from_proto(model)).model.graph
    value = next(node.inputs[1] for node in graph if node.op_type == op_type)
    assert value is not None
    return value


def test_scales_lie_along_the_axis_of_their_channels() -> None:
    found = prequantized_qparams(weight_of(given.per_channel()), 1, 127)
    assert found is not None
    assert (found.dtype, found.granularity) == (INT8, PerChannel(1))
    assert np.array_equal(found.scale, given.scales(given.N))


def test_scales_of_another_axis_do_not_fit() -> None:
    assert prequantized_qparams(weight_of(given.per_channel()), 0, 127) is None
    assert prequantized_qparams(weight_of(given.per_channel()), None, 127) is None


def test_one_scale_goes_through_what_moves_the_weight() -> None:
    found = prequantized_qparams(weight_of(given.turned()), 1, 127)
    assert found is not None
    assert found.granularity == PerTensor()
    assert found.scale == np.float32(0.002)


def test_integers_beyond_the_limit_do_not_fit() -> None:
    assert prequantized_qparams(weight_of(given.turned()), 1, 64) is None
    assert prequantized_qparams(weight_of(given.few_levels(), "Conv"), 0, 64) is not None


def test_integers_around_another_zero_point_fit_where_int8_holds_the_difference() -> None:
    assert prequantized_qparams(weight_of(given.shifted()), 1, 127) is None  # up to 155


def test_a_batch_norm_multiplies_the_scales() -> None:
    model = given.few_levels()
    factor = np.linspace(0.5, -2, 32).astype(np.float32)
    numbers = {"gamma": factor, "beta": factor, "mean": factor, "var": np.ones(32, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in numbers.items())
    model.graph.node.append(
        helper.make_node("BatchNormalization", ["y", *numbers], ["z"], "norm", epsilon=0.0)
    )
    model.graph.output[0].name = "z"
    found = prequantized_qparams(weight_of(model, "Conv"), 0, 64)
    assert found is not None
    np.testing.assert_allclose(found.scale, given.scales(32) * np.abs(factor), rtol=1e-6)


def test_groups_have_a_scale_for_each_number() -> None:
    weight = weight_of(given.groups())
    found = find_prequantized(weight)
    assert found is not None
    assert stored_bits(weight) == 4
    integers = given.integers(0, 16, given.K, given.N)
    assert np.array_equal(found.centred + found.zero_point, integers)
    assert np.array_equal(found.scale, np.repeat(given.scales(8, given.N), 32, axis=0))


def test_a_float_weight_is_not_given() -> None:
    weight = weight_of(given.nbits())
    assert not is_prequantized(weight)
    assert (stored_bits(weight), find_prequantized(weight)) == (32, None)


def a_chain(op_type: str, count: int, *other: str) -> onnx.ModelProto:
    """Nodes in a row behind a DequantizeLinear; without `other` each reads the last twice."""
    graph = given.Graph()
    graph.constant("integers", given.integers(-127, 128, given.K, given.N).astype(np.int8))
    graph.constant("scale", np.float32(0.01))
    graph.constant("factor", np.float32(1.001))
    graph.op("DequantizeLinear", ["integers", "scale"], "w0")
    for i in range(count):
        graph.op(op_type, [f"w{i}", *(other or (f"w{i}",))], f"w{i + 1}")
    return graph.model(graph.op("MatMul", ["x", f"w{count}"], "y"))


def test_scales_go_once_through_a_chain_that_doubles_itself() -> None:
    found = prequantized_qparams(weight_of(a_chain("Max", 60)), 1, 127)  # 2^60 ways back
    assert found is not None
    assert found.scale == np.float32(0.01)


def test_a_weight_behind_very_many_nodes_counts_as_stored() -> None:
    assert is_prequantized(weight_of(a_chain("Mul", DEEPEST - 1, "factor")))
    assert not is_prequantized(weight_of(a_chain("Mul", 1200, "factor")))
