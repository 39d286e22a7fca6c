from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq import reference
from onnxq.errors import UnsupportedError
from onnxq.reference.float_nodes import FloatNodes
from tests.examples import as_ir, model, weights

if TYPE_CHECKING:
    from collections.abc import Mapping

make = helper.make_node
OPSETS = {"": 18, "com.microsoft": 1}
X = weights(0, 5, 8)


def add_one(_: onnx.NodeProto, __: Mapping[str, int]) -> reference.RunNode:
    return lambda inputs: [np.asarray(inputs[0]) + np.float32(1)]


def nothing() -> FloatNodes:
    return FloatNodes(as_ir(model([make("Relu", ["x"], ["y"])], {}, {"x": [5, 8]})))


def test_a_node_runs_by_itself() -> None:
    (y,) = nothing()(make("Exp", ["x"], ["y"], "exp"), OPSETS)([X])
    assert np.allclose(y.astype(np.float32), np.exp(X), 1e-6)


def test_absent_inputs_and_outputs_without_a_name_are_left_out() -> None:
    run = nothing()(make("Clip", ["x", "", "top"], ["y"], "clip"), OPSETS)
    assert np.array_equal(run([X, None, np.array(0, np.float32)])[0], np.minimum(X, 0))
    node = make("LayerNormalization", ["x", "one"], ["y", "", "inverse"], "norm")
    y, inverse = nothing()(node, OPSETS)([X, np.ones(8, np.float32)])
    wanted = (X - X.mean(1, keepdims=True)) * inverse.astype(np.float32)
    assert np.allclose(y.astype(np.float32), wanted, atol=1e-5)


def test_sizes_that_the_model_computes_are_known_by_their_number() -> None:
    run = nothing()(make("Resize", ["x", "", "", "sizes"], ["y"], "grow"), OPSETS)
    (y,) = run([X, None, None, np.array([10, 16])])
    assert y.shape == (10, 16)
    longer = np.array([1, 10, 8])
    assert run([X[None], None, None, longer])[0].shape == (1, 10, 8)


def test_constants_are_those_of_the_model() -> None:
    node = make("MatMul", ["x", "w"], ["y"], "matmul")
    target = as_ir(model([node], {"w": weights(1, 8, 4)}, {"x": [5, 8]}))
    (y,) = FloatNodes(target)(node, OPSETS)([X, np.zeros((8, 4), np.float32)])
    assert np.allclose(y.astype(np.float32), X @ weights(1, 8, 4), 1e-5, 1e-6)


def test_what_constants_alone_give_is_a_constant_too() -> None:
    """ONNX Runtime dequantizes it at load, and packs it for the kernel that it then runs."""
    nodes = [
        make("DequantizeLinear", ["integers", "s"], ["w"], "dequantize"),
        make("Transpose", ["w"], ["turned"], "turn", perm=[1, 0]),
        make("MatMul", ["x", "turned"], ["y"], "matmul"),
    ]
    integers = np.arange(32, dtype=np.int8).reshape(4, 8)
    target = as_ir(
        model(nodes, {"integers": integers, "s": np.array(0.1, np.float32)}, {"x": [5, 8]})
    )
    run = FloatNodes(target)(nodes[2], OPSETS)
    w = np.asarray(integers.T * np.float32(0.1))
    (y,) = run([X, w])
    assert np.array_equal(y, run([X, np.zeros_like(w)])[0])
    assert np.allclose(y.astype(np.float32), X @ w, 1e-5, 1e-5)


def test_what_a_branch_gives_is_no_constant() -> None:
    kind = helper.make_tensor_value_info("b", 1, [8])
    branch = helper.make_graph([make("Identity", ["one"], ["b"])], "branch", [], [kind])
    choose = make("If", ["c"], ["w"], "if", then_branch=branch, else_branch=branch)
    add = make("Add", ["x", "w"], ["y"], "add")
    given = {"one": np.ones(8, np.float32), "c": np.array(True)}
    run = FloatNodes(as_ir(model([choose, add], given, {"x": [5, 8]})))(add, OPSETS)
    for w in (np.ones(8, np.float32), np.zeros(8, np.float32)):
        assert np.array_equal(run([X, w])[0], X + w)


def test_other_types_and_ranks_are_taken_as_they_come() -> None:
    run = nothing()(make("Abs", ["x"], ["y"], "abs"), OPSETS)
    for x in (X, X[0], X.astype(np.float64)):
        (y,) = run([x])
        assert (y.shape, y.dtype) == (x.shape, x.dtype)


def test_what_onnx_runtime_does_not_know_is_refused_with_the_node() -> None:
    with pytest.raises(UnsupportedError, match="node Frob 'frob', by itself"):
        nothing()(make("Frob", ["x"], ["y"], "frob"), OPSETS)([X])


def test_the_evaluator_gives_it_float_nodes_and_no_others() -> None:
    nodes = [
        make("Exp", ["x"], ["a"], "exp"),
        make("Neg", ["n"], ["b"], "negative"),
    ]
    proto = model(nodes, {"n": np.array([3])}, {"x": [5, 8]}, {"a": 1, "b": 7})
    a, b = reference.evaluator(proto, float_nodes=add_one).run(None, {"x": X})
    assert np.array_equal(a, X + 1)
    assert b.tolist() == [-3]


def test_float_nodes_in_branches_run_there_too() -> None:
    def branch(op_type: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(f"{op_type}_y", 1, None)
        return helper.make_graph(
            [make(op_type, ["x"], [value.name], op_type)], op_type, [], [value]
        )

    node = make("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Neg"))
    proto = model([node], {"c": np.array(True)}, {"x": [5, 8]})
    (y,) = reference.evaluator(proto, float_nodes=add_one).run(None, {"x": X})
    assert np.array_equal(y, X + 1)


def test_an_unknown_node_with_a_body_is_refused_by_name() -> None:
    """A body reads values around it, so that its node cannot run elsewhere."""
    body = helper.make_graph([make("Neg", ["x"], ["z"])], "body", [], [])
    unknown = as_ir(model([make("Lop", ["x"], ["y"], "lop", body=body)], {}, {"x": [5, 8]}))
    with pytest.raises(UnsupportedError, match=r"no implementation of ai\.onnx Lop"):
        reference.integer_evaluator(unknown, float_nodes=FloatNodes(unknown))
