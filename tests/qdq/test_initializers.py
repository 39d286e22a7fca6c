from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import INT8, UINT8
from onnxq.qdq.initializers import Initializers
from onnxq.qparams import per_tensor
from tests.examples import tensor_of

FINE, COARSE = per_tensor(0.25, 0, INT8), per_tensor(0.5, 0, INT8)


def graph_with_weight() -> tuple[ir.Graph, ir.Value]:
    x = ir.val("x", ir.DataType.FLOAT, [2])
    weight = ir.Value(name="w", const_value=ir.tensor(np.array([1.0, -1.0], np.float32)))
    return ir.Graph([x], [x], nodes=[], initializers=[weight]), weight


def test_names_are_given_out_once() -> None:
    new = Initializers({"w", "w_1"})
    assert [new.unique("w"), new.unique("w"), new.unique("v")] == ["w_2", "w_3", "v"]


def test_the_set_of_names_that_came_in_stays_as_it_is() -> None:
    used = {"w"}
    Initializers(used).unique("v")
    assert used == {"w"}


def test_integers_of_a_tied_weight_are_made_once() -> None:
    graph, weight = graph_with_weight()
    new = Initializers({"x", "w"})
    integers, stem = new.integers(weight, FINE, None)
    assert (stem, integers.name) == ("w", "w_quantized")
    assert tensor_of(integers).numpy().tolist() == [4, -4]
    assert new.integers(weight, FINE, None) == (integers, "w")
    assert list(new.replaced) == [weight]
    assert set(graph.initializers) == {"w", "w_quantized"}


def test_readers_that_differ_in_qparams_get_integers_of_their_own() -> None:
    _, weight = graph_with_weight()
    new = Initializers({"x", "w"})
    new.integers(weight, FINE, None)
    integers, stem = new.integers(weight, COARSE, None)
    assert (stem, integers.name) == ("w_again", "w_again_quantized")
    assert tensor_of(integers).numpy().tolist() == [2, -2]


def test_readers_that_differ_in_their_integer_limit_get_integers_of_their_own() -> None:
    _, weight = graph_with_weight()
    new = Initializers({"x", "w"})
    new.integers(weight, FINE, 3)
    integers, _ = new.integers(weight, FINE, 2)
    assert tensor_of(integers).numpy().tolist() == [2, -2]


def test_scale_and_zero_point_are_made_once_per_tensor_and_graph() -> None:
    graph, _ = graph_with_weight()
    other, _ = graph_with_weight()
    new = Initializers({"t"})
    p = per_tensor(0.25, 3, UINT8)
    graph_qparams = new.graph_qparams(graph, "t", p)
    scale, zero_point = graph_qparams.scale, graph_qparams.zero_point
    assert zero_point is not None
    assert (scale.name, zero_point.name) == ("t_scale", "t_zero_point")
    assert tensor_of(scale).numpy() == np.float32(0.25)
    assert tensor_of(zero_point).numpy() == 3
    assert zero_point.dtype == ir.DataType.UINT8
    assert new.graph_qparams(graph, "t", p) is graph_qparams
    assert new.graph_qparams(other, "t", p).scale.name == "t_scale_1"


def test_an_array_is_an_initializer_of_that_type_and_shape() -> None:
    graph, _ = graph_with_weight()
    value = Initializers({"w"}).constants_of(graph)("w", np.zeros((2, 3), np.uint8))
    assert graph.initializers["w_1"] is value
    assert value.dtype == ir.DataType.UINT8
    assert value.shape == ir.Shape([2, 3])


def test_layouts_of_a_weight_are_told_apart() -> None:
    weight = ir.Value(name="w", const_value=ir.tensor(np.array([[1, 2, 3]], np.float32)))
    graph = ir.Graph([], [], nodes=[], initializers=[weight])
    new = Initializers({"w"})
    plain, _ = new.integers(weight, COARSE)
    turned, _ = new.integers(weight, COARSE, perm=(1, 0))
    assert tensor_of(plain).numpy().tolist() == [[2, 4, 6]]
    assert tensor_of(turned).numpy().tolist() == [[2], [4], [6]]
    assert set(graph.initializers) == {"w", "w_quantized", "w_again_quantized"}


def test_half_weights_are_made_once_per_layout() -> None:
    weight = ir.Value(name="w", const_value=ir.tensor(np.array([[1, 0.1]], np.float32)))
    ir.Graph([], [], nodes=[], initializers=[weight])
    new = Initializers({"w"})
    half = new.half(weight)
    assert (half.name, half.dtype) == ("w_half", ir.DataType.FLOAT16)
    assert new.half(weight) is half
    assert new.half(weight, (1, 0)).name == "w_half_1"
    assert list(new.replaced) == [weight]
