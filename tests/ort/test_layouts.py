"""ONNX Runtime is asked what it does between two convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.ort.layouts import ADDED_BY_CONV, CHANNELS_LAST, FUSED_BEHIND_CONV, IN_BLOCKS
from onnxq.ort.runtime import optimized_graph
from onnxq.targets import detect

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
CONSTANTS = {
    "w": np.ones((32, 32, 1, 1), np.float32),
    "wide": np.ones((32, 64, 1, 1), np.float32),
    "low": np.float32(0),
    "high": np.float32(6),
    "twice": np.array([1, 1, 2, 2], np.float32),
}
POOL = "<kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a)"
CALLS = {
    "Clip": "Clip(a, low, high)",
    "Add": "Add(a, b)",
    "Sum": "Sum(a, b)",
    "Mul": "Mul(a, b)",
    "Concat": "Concat <axis = 1> (a, b)",
    "MaxPool": f"MaxPool {POOL}",
    "AveragePool": f"AveragePool {POOL}",
    "Resize": 'Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", '
    'nearest_mode = "floor"> (a, , twice)',
}
"""Calls of operators that take more than one tensor `a`."""

pytestmark = pytest.mark.skipif(
    not detect().name.startswith("x86"), reason="ARM has no blocks of channels everywhere"
)


def optimized(call: str) -> list[str]:
    """Operators that run: convolution, the call, convolution."""
    last = "wide" if call.startswith("Concat") else "w"
    text = (
        "g (float[1,32,8,8] x) => (float[] y)\n"
        f"{{ a = Conv(x, w) b = Conv(a, w) c = {call} y = Conv(c, {last}) }}"
    )
    proto = onnx.parser.parse_model(HEAD + text)
    for name, array in CONSTANTS.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    if "b" not in call:
        del proto.graph.node[1]
    return [node.op_type for node in optimized_graph(ir.from_proto(proto)).graph]


@pytest.mark.parametrize("op_type", sorted(IN_BLOCKS))
def test_what_runs_in_blocks_is_not_reordered(op_type: str) -> None:
    found = optimized(CALLS.get(op_type, f"{op_type}(a)"))
    assert found.count("ReorderInput") == found.count("ReorderOutput") == 1  # at the two ends


@pytest.mark.parametrize("op_type", sorted(FUSED_BEHIND_CONV | ADDED_BY_CONV))
def test_what_a_convolution_computes_itself_is_no_node(op_type: str) -> None:
    assert op_type not in optimized(CALLS.get(op_type, f"{op_type}(a)"))


@pytest.mark.parametrize("op_type", ["Elu", "Erf", "Softplus", "Sqrt"])
def test_others_are_reordered_on_both_sides(op_type: str) -> None:
    found = optimized(f"{op_type}(a)")
    assert found.count("ReorderInput") == found.count("ReorderOutput") == 2


def test_integer_nodes_that_run_channels_last_are_on_images() -> None:
    assert CHANNELS_LAST <= IN_BLOCKS
