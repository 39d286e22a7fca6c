from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.errors import ModelError
from onnxq.graph.passes.fused_conv import TakeFusedConvsApart
from onnxq.ort import runtime
from tests.examples import images, network

if TYPE_CHECKING:
    from pathlib import Path

CASES = [
    ("", []),
    ("Relu", []),
    ("Sigmoid", []),
    ("Tanh", []),
    ("LeakyRelu", [0.1]),
    ("HardSigmoid", [0.2, 0.5]),
    ("Clip", [0.0, 0.5]),
]


def fused(kind: str, params: list[float], *, adds: bool) -> onnx.ModelProto:
    """A FusedConv of x, with a sum ahead of its activation."""
    w = np.random.default_rng(0).normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32)
    slots = ["x", "w", "b", *(["z"] if adds else [])]
    attributes: dict[str, Any] = {"pads": [1] * 4}
    attributes |= {"activation": kind} if kind else {}
    attributes |= {"activation_params": params} if params else {}
    node = helper.make_node("FusedConv", slots, ["y"], "conv", domain="com.microsoft", **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value("x", TensorProto.FLOAT, [1, 3, 6, 6]), value("z", TensorProto.FLOAT, [1, 4, 6, 6])],
        [value("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(w[:, 0, 0, 0], "b")],
    )
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9)


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize(("kind", "params"), CASES)
def test_what_is_taken_apart_computes_the_same(kind: str, params: list[float], adds: bool) -> None:
    given = ir.from_proto(fused(kind, params, adds=adds))
    rng = np.random.default_rng(1)
    feeds = {n: rng.normal(size=s).astype(np.float32) for n, s in SHAPES.items()}
    with runtime.open_session(given, threads=1) as session:
        wanted = np.asarray(session.run(feeds)[0], np.float32)
    assert TakeFusedConvsApart()(given).modified
    assert not TakeFusedConvsApart()(given).modified
    assert "FusedConv" not in {node.op_type for node in given.graph}
    with runtime.open_session(given, threads=1) as session:
        found = np.asarray(session.run(feeds)[0], np.float32)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


SHAPES = {"x": (1, 3, 6, 6), "z": (1, 4, 6, 6)}


def optimized(level: str, path: Path) -> Path:
    """Path of a network as ONNX Runtime optimizes it at a level."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(network().SerializeToString(), options)
    return path


def test_an_optimized_network_is_quantized_as_its_original(tmp_path: Path) -> None:
    path = optimized("ORT_ENABLE_EXTENDED", tmp_path / "m.onnx")
    assert "FusedConv" in {node.op_type for node in onnx.load(path).graph.node}
    counts = [
        onnxq.plan(made, onnxq.calibrate(made, {"x": images(8)})).decisions.values()
        for made in (onnxq.prepare(path), onnxq.prepare(network()))
    ]
    one, other = (sum("Quantize" in type(d).__name__ for d in found) for found in counts)
    assert one == other > 0


def test_a_layout_of_one_machine_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = optimized("ORT_ENABLE_ALL", tmp_path / "m.onnx")
    if not any(node.domain == "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("this machine has no layout of its own")
    for command in (onnxq.quantize_dynamic, onnxq.half, onnxq.import_qdq):
        with pytest.raises(ModelError, match=r"for one machine.*that it was made from"):
            command(path)
