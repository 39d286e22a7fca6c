from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxq import reference
from onnxq.errors import UnsupportedError

Floats = npt.NDArray[np.float32]
X = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def matrix(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "columns"])


def number(name: str, kind: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [])


def model(node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    numbers = [("limit", np.int64(3)), ("none", np.int64(0)), ("start", np.zeros((3, 2), "f"))]
    graph = helper.make_graph(
        [node],
        "loops",
        [value(name) for name in inputs],
        [value(name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in numbers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def scan(x: Floats, attributes: dict[str, list[int]]) -> tuple[list[Floats], list[Floats]]:
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
    return reference.evaluator(proto).run(None, feeds), session.run(None, feeds)


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


def loop(limit: str, condition: str = "") -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Add", ["h", "x"], ["new"]),
            helper.make_node("Identity", ["new"], ["shown"]),
        ],
        "body",
        [number("i", TensorProto.INT64), number("going", TensorProto.BOOL), matrix("h")],
        [number("still", TensorProto.BOOL), matrix("new"), matrix("shown")],
    )
    node = helper.make_node("Loop", [limit, condition, "start"], ["last", "all"], body=body)
    return model(node, ["x"], ["last", "all"])


def test_loop_stacks_what_it_collects() -> None:
    proto, feeds = loop("limit"), {"x": X[0]}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    ours = reference.evaluator(proto).run(None, feeds)
    for y, wanted in zip(ours, session.run(None, feeds), strict=True):
        assert np.array_equal(y, wanted)
    assert ours[1].shape == (3, 3, 2)


def test_nothing_collected_is_refused_in_words() -> None:
    with pytest.raises(UnsupportedError, match="without a turn"):
        reference.evaluator(loop("none")).run(None, {"x": X[0]})
