from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxq import reference
from onnxq.operator import AttributeValue, Call, Case, Float, NodePlan, Rule
from onnxq.operators.max_pool import MaxPool
from onnxq.ort import runtime
from tests.operators import builder
from tests.operators.builder import SHARED, copied

OP = MaxPool()


X = np.zeros((1, 1, 4, 4), np.float32)


def test_used_indices_stay_float() -> None:
    case = Case("", (X,), attributes={"kernel_shape": [2, 2]}, outputs=2)
    rule = builder.rule(OP, case)
    assert isinstance(rule, Float)
    assert "Indices" in rule.reason.words


def test_unused_indices_keep_onnx_runtime_from_fusing() -> None:
    model = builder.float_model(OP, Case("", (X,), attributes={"kernel_shape": [2, 2]}, outputs=2))
    del model.graph.output[1]
    rule = OP.rule(ir.from_proto(model).graph[0])
    assert isinstance(rule, Rule)
    assert rule.lowered


def test_padding_never_wins() -> None:
    (y,) = copied(OP, np.zeros((1, 1, 1), np.uint8), kernel_shape=[3], pads=[1, 1])
    assert y.tolist() == [[[0]]]


@given(
    size=st.integers(3, 9),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 4),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ceil_mode=st.integers(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_kernel_equals_onnx_runtime_for_any_window(
    size: int, kernel: int, stride: int, pads: tuple[int, int], ceil_mode: int
) -> None:
    attributes: dict[str, AttributeValue] = {
        "kernel_shape": [kernel],
        "strides": [stride],
        "pads": [min(p, kernel - 1) for p in pads],
        "ceil_mode": ceil_mode,
    }
    case = Case("window", (np.zeros((2, 3, size), np.float32),), attributes=attributes)
    plan = NodePlan((SHARED,), (SHARED,))
    x = np.random.default_rng(size).integers(0, 256, (2, 3, size)).astype(np.uint8)
    (wanted,) = builder.run(builder.lowered_model(OP, case, plan, [x]), case, [x])
    assert np.array_equal(OP.kernel(Call(OP.op_type, [x], plan, attributes=attributes))[0], wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 9), {"kernel_shape": [3], "pads": [1, 2], "strides": [2]}),
        ((2, 3, 6, 5), {"kernel_shape": [2, 3], "pads": [1, 0, 1, 2], "dilations": [2, 1]}),
        ((2, 3, 6, 5), {"kernel_shape": [2, 3], "storage_order": 1, "strides": [2, 1]}),
        ((2, 2, 6, 5), {"kernel_shape": [3, 2], "ceil_mode": 1, "strides": [2, 3]}),
        ((2, 2, 6, 5), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 1]}),
        ((2, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "storage_order": 1}),
        ((2, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "pads": [1, 1, 0, 0, 1, 1]}),
        ((0, 2, 6, 5), {"kernel_shape": [2, 2]}),
    ],
    ids=str,
)
def test_indices_are_onnx_runtime_s(
    dtype: str, shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """Few values, so that there are ties; the smallest of all among them, as in the padding."""
    low = np.iinfo(dtype).min
    x = np.random.default_rng(0).integers(low, low + 3, shape).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x"], ["y", "i"], "pool", **attributes)],
        "pool",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(*entry, None) for entry in (("y", kind), ("i", 7))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with runtime.open_session(ir.from_proto(model)) as session:
        wanted = session.run({"x": x})
    for ours, theirs in zip(reference.evaluator(model).run(None, {"x": x}), wanted, strict=True):
        assert np.array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
