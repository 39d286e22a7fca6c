from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.graph.canonical import canonicalize
from onnxq.graph.folded import (
    LEAST_SAVED_BYTES,
    folded_of,
    given_bytes,
    saved_by_writing_as_given,
    write_as_given,
)
from onnxq.graph.saving import saved_bytes
from onnxq.ort import runtime
from tests import stored_weights as given
from tests.examples import network

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = {
    "per channel": given.per_channel,
    "zero points": given.zero_points,
    "turned": given.turned,
    "groups": given.groups,
    "groups of float16": lambda: given.groups(half=True),
    "few levels": given.few_levels,
    "shifted": given.shifted,
}


def canonical(make: Callable[[], onnx.ModelProto]) -> ir.Model:
    return canonicalize(ir.from_proto(make())).model


def computed(model: ir.Model) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    shape = [n if isinstance(n, int) else 4 for n in model.graph.inputs[0].shape or ()]
    x = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    with runtime.open_session(model, threads=1) as session:
        return np.asarray(session.run({"x": x})[0])


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_as_given_computes_the_same(name: str) -> None:
    model = canonical(MODELS[name])
    wanted = computed(model)
    write_as_given(model)
    found = computed(model)
    # MatMulNBits, which ONNX Runtime makes of groups, rounds activations to int8
    allowed = 0.05 if "groups" in name else 1e-6
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed * float(np.abs(wanted).max()))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_as_given_has_the_size_of_the_given_file(name: str) -> None:
    model, file = canonical(MODELS[name]), MODELS[name]()
    wanted = saved_bytes(model) - saved_by_writing_as_given(model)
    write_as_given(model)
    weights = sum(node.op_type == "DequantizeLinear" for node in file.graph.node)
    nodes = LEAST_SAVED_BYTES * max(1, weights)
    assert abs(saved_bytes(model) - wanted) < nodes
    assert saved_bytes(model) < file.ByteSize() + nodes


def test_a_float16_weight_is_stored_as_float16_behind_a_cast() -> None:
    model = canonical(lambda: network(dtype=onnx.TensorProto.FLOAT16))
    write_as_given(model)
    stored = [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.FLOAT16]
    assert stored
    assert {use.node.op_type for v in stored for use in v.uses()} == {"Cast"}


def test_float32_weights_stay_as_they_are() -> None:
    model = canonical(network)
    before = list(model.graph.initializers)
    write_as_given(model)
    assert list(model.graph.initializers) == before


def test_a_small_constant_is_not_worth_a_node() -> None:
    model = canonical(given.few_levels)
    bias = model.graph.initializers["b"]
    assert folded_of(bias.const_value) is not None
    write_as_given(model)
    assert "b" in model.graph.initializers


def test_bytes_of_a_weight_are_those_of_its_integers_and_scales() -> None:
    weight = canonical(given.per_channel).graph.initializers["w"].const_value
    assert weight is not None
    assert given_bytes(weight) == given.K * given.N + given.N * (4 + 1)


def test_a_constant_that_is_one_number_stays_as_it_is() -> None:
    graph = given.Graph()
    graph.constant("one", np.float32(1))
    graph.constant("shape", np.array([given.K, given.N], np.int64))
    graph.op("Expand", ["one", "shape"], "w")
    graph.constant("most", np.ones((40 * given.K, given.N), np.float32))
    graph.op("MatMul", ["x", "w"], "p")
    graph.op("Gemm", ["p", "most"], "q", transB=1)
    file = graph.model("q")
    model = canonical(lambda: file)
    write_as_given(model)
    assert model.graph.initializers["w"].dtype == ir.DataType.FLOAT


def test_tables_that_would_double_the_file_stay_the_nodes_that_compute_them() -> None:
    graph = given.Graph()
    graph.constant("rows", np.arange(given.K, dtype=np.float32)[:, None])
    graph.constant("columns", np.arange(given.N, dtype=np.float32)[None])
    graph.op("Mul", ["rows", "columns"], "phase")
    graph.op("Cos", ["phase"], "w")
    file = graph.model(graph.op("MatMul", ["x", "w"], "y"))
    model = canonical(lambda: file)
    assert "w" in model.graph.initializers
    write_as_given(model)
    assert [node.op_type for node in model.graph] == ["Mul", "Cos", "MatMul"]
    assert set(model.graph.initializers) == {"rows", "columns"}


def test_a_chain_that_doubles_itself_is_gone_through_once() -> None:
    graph = given.Graph()
    graph.constant("c0", np.full((1, 64), 1e-9, np.float32))
    for i in range(60):  # 2^60 ways back to c0
        graph.op("Add", [f"c{i}", f"c{i}"], f"c{i + 1}")
    graph.op("MatMul", ["x", "w"], "p")
    graph.constant("w", np.ones((given.K, 64), np.float32))
    model = canonical(lambda: graph.model(graph.op("Add", ["p", "c60"], "y")))
    folded = [v for v in model.graph.initializers.values() if folded_of(v.const_value)]
    assert [given_bytes(v.const_value) for v in folded if v.const_value is not None] == [256]
