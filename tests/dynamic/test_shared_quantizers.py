from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq import cross_check
from onnxq.dynamic.rewrite_dynamic import ShareQuantizers
from onnxq.operator import Precision
from onnxq.samples import Samples
from tests.operators.dynamic_builder import PER_TENSOR, SYMMETRIC, optimized_ops, quantized

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.observers import ObserverSpec

Weights = list[npt.NDArray[np.float32]]
WIDTH = 24
X = np.random.default_rng(9).standard_normal((2, 5, WIDTH)).astype(np.float32)
EITHER = pytest.mark.parametrize("weight", [SYMMETRIC, PER_TENSOR], ids=["column", "tensor"])
FUSED = ["DynamicQuantizeLinear", *["MatMulIntegerToFloat"] * 3]


def weights(columns: int = WIDTH) -> Weights:
    random = np.random.default_rng(0)
    return [random.standard_normal((WIDTH, columns)).astype(np.float32) for _ in range(3)]


def readers(matrices: Weights, *, bias: bool) -> onnx.ModelProto:
    """x -> MatMul (-> Add) for each matrix: the projections of an attention layer."""
    nodes, initializers, outputs = [], [], []
    for i, w in enumerate(matrices):
        y = f"y{i}"
        nodes.append(helper.make_node("MatMul", ["x", f"w{i}"], [f"p{i}" if bias else y], f"m{i}"))
        initializers.append(numpy_helper.from_array(w, f"w{i}"))
        if bias:
            nodes.append(helper.make_node("Add", [f"p{i}", f"b{i}"], [y], f"a{i}"))
            vector = np.full(w.shape[1], i, np.float32)
            initializers.append(numpy_helper.from_array(vector, f"b{i}"))
        shape = ["batch", 5, w.shape[1]]
        outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, shape))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 5, WIDTH])
    graph = helper.make_graph(nodes, "readers", [x], outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@EITHER
@pytest.mark.parametrize("bias", [True, False])
def test_readers_of_one_tensor_share_its_integers(
    weight: ObserverSpec, bias: bool, tmp_path: Path
) -> None:
    model = quantized(readers(weights(), bias=bias), Precision.DYNAMIC_INT8, weight)
    assert optimized_ops(model, tmp_path) == FUSED
    cross_check(model, Samples({"x": X}, batch_size=2)).check()


@EITHER
@pytest.mark.parametrize("bias", [True, False])
def test_equal_scales_do_not_keep_it_from_fusing(
    weight: ObserverSpec, bias: bool, tmp_path: Path
) -> None:
    equal = [np.sign(w) for w in weights()]
    model = quantized(readers(equal, bias=bias), Precision.DYNAMIC_INT8, weight)
    assert optimized_ops(model, tmp_path) == FUSED
    cross_check(model, Samples({"x": X}, batch_size=2)).check()


def test_equal_scales_of_one_column_are_right_though_not_fused() -> None:
    equal = [np.sign(w) for w in weights(1)]
    model = quantized(readers(equal, bias=True), Precision.DYNAMIC_INT8, PER_TENSOR)
    cross_check(model, Samples({"x": X}, batch_size=2)).check()


def test_scales_that_differ_stay_as_they_are() -> None:
    model = quantized(readers(weights(), bias=True), Precision.DYNAMIC_INT8, PER_TENSOR)
    assert not [name for name in model.graph.initializers if "per_column" in name]


def test_second_run_changes_nothing() -> None:
    equal = [np.sign(w) for w in weights()]
    model = quantized(readers(equal, bias=True), Precision.DYNAMIC_INT8, PER_TENSOR)
    assert not ShareQuantizers()(model).modified


def test_graphs_keep_their_own() -> None:
    """A quantizer in a branch of If is not run where the other branch is taken."""
    w = weights()[0]
    branches = {
        name: helper.make_graph(
            [helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_y"], f"{name}_m")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w * scale, f"{name}_w")],
        )
        for name, scale in (("then", np.float32(1)), ("else", np.float32(2)))
    }
    node = helper.make_node(
        "If", ["c"], ["y"], "if", then_branch=branches["then"], else_branch=branches["else"]
    )
    graph = helper.make_graph(
        [node],
        "branches",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 5, WIDTH]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5, WIDTH])],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    found = quantized(model, Precision.DYNAMIC_INT8)
    counts = [
        sum(node.op_type == "DynamicQuantizeLinear" for node in each) for each in found.graphs()
    ]
    assert sorted(counts) == [0, 1, 1]
