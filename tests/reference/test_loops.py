from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests import this_machine

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles

X = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def matrix(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "columns"])


def number(name: str, kind: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [])


def model(node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    numbers = [
        ("limit", np.int64(3)),
        ("none", np.int64(0)),
        ("most", np.int64(4)),
        ("yes", np.bool_(True)),
        ("no", np.bool_(False)),
        ("start", np.zeros((3, 2), "f")),
    ]
    graph = helper.make_graph(
        [node],
        "loops",
        [value(name) for name in inputs],
        [value(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in numbers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def scan(x: Singles, attributes: dict[str, list[int]]) -> tuple[list[Singles], list[Singles]]:
    """(onnxq's, ONNX Runtime's) running sums of slices and each doubled."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "slice"], ["new"]),
            helper.make_node("Add", ["new", "outer"], ["shown"]),
        ],
        "body",
        [matrix("sum"), matrix("slice")],
        [matrix("new"), matrix("shown")],
    )
    node = helper.make_node("Scan", ["first", "x"], ["last", "all"], body=body, num_scan_inputs=1)
    node.attribute.extend(helper.make_attribute(name, given) for name, given in attributes.items())
    proto = model(node, ["x", "first", "outer"], ["last", "all"])
    axis = attributes.get("scan_input_axes", [0])[0]
    first = np.ones_like(np.take(x, 0, axis))
    feeds = {"x": x, "first": first, "outer": np.array(5, np.float32)}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return this_machine.evaluator(proto).run(None, feeds), session.run(None, feeds)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [1]},
        {"scan_output_directions": [1]},
        {"scan_input_axes": [1]},
        {"scan_input_axes": [2], "scan_output_axes": [1], "scan_input_directions": [1]},
    ],
    ids=str,
)
def test_scan_goes_along_any_axis_either_way(attributes: dict[str, list[int]]) -> None:
    ours, theirs = scan(X, attributes)
    for y, wanted in zip(ours, theirs, strict=True):
        assert np.array_equal(y, wanted)
        assert y.shape == wanted.shape


def loop(limit: str, condition: str = "", shape: list[str | int] | None = None) -> onnx.ModelProto:
    """Adds x to start, at most 5 times."""
    kind = helper.make_tensor_value_info("shown", TensorProto.FLOAT, shape)
    body = helper.make_graph(
        [
            helper.make_node("Less", ["i", "most"], ["still"]),
            helper.make_node("Add", ["h", "x"], ["new"]),
            helper.make_node("Identity", ["new"], ["shown"]),
        ],
        "body",
        [number("i", TensorProto.INT64), number("going", TensorProto.BOOL), matrix("h")],
        [number("still", TensorProto.BOOL), matrix("new"), kind],
    )
    node = helper.make_node("Loop", [limit, condition, "start"], ["last", "all"], body=body)
    return model(node, ["x"], ["last", "all"])


@pytest.mark.parametrize("shape", [None, ["rows", 2], [3, 2]], ids=str)
@pytest.mark.parametrize(
    ("limit", "condition", "turns"),
    [
        ("limit", "", 3),
        ("", "", 5),
        ("", "yes", 5),
        ("limit", "yes", 3),
        ("none", "", 0),
        ("none", "yes", 0),
        ("limit", "no", 0),
        ("", "no", 0),
    ],
)
def test_loop_stacks_what_it_collects_in_so_many_turns(
    limit: str, condition: str, turns: int, shape: list[str | int] | None
) -> None:
    proto, feeds = loop(limit, condition, shape), {"x": X[0]}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    ours = this_machine.evaluator(proto).run(None, feeds)
    for y, wanted in zip(ours, session.run(None, feeds), strict=True):
        assert np.array_equal(y, wanted)
        assert (y.shape, y.dtype) == (wanted.shape, wanted.dtype)
    assert len(ours[1]) == turns
