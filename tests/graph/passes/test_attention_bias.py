from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.graph.passes.fuse_softmax import GiveAttentionBias
from onnxq.graph.types import infer_types

if TYPE_CHECKING:
    from tests.graph.conftest import Parse, Run

X = np.random.default_rng(0).normal(size=(1, 3, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(4, 12)).astype(np.float32)


def made(parse: Parse, *inputs: str) -> ir.Model:
    graph = "g (float[1,3,4] x) => (float[1,3,4] y) { y = Identity(x) }"
    model = parse(graph, {"w": W, "b": np.ones(12, np.float32)})
    model.opset_imports["com.microsoft"] = 1
    infer_types(model)
    (node,) = model.graph
    values = {"x": model.graph.inputs[0], **model.graph.initializers, "": None}
    fused = ir.node(
        "Attention", [values[name] for name in inputs], {"num_heads": 2}, domain="com.microsoft"
    )
    model.graph.insert_before(node, fused)
    node.replace_input_with(0, fused.outputs[0])
    fused.outputs[0].name = "a"
    return model


@pytest.mark.parametrize("inputs", [("x", "w"), ("x", "w", "")])
def test_zeros_stand_for_an_absent_bias(inputs: tuple[str, ...], parse: Parse, run: Run) -> None:
    model = made(parse, *inputs)
    assert GiveAttentionBias()(model).modified
    assert not GiveAttentionBias()(model).modified
    bias = model.graph[0].inputs[2]
    assert bias is not None
    assert bias.const_value is not None
    assert bias.const_value.numpy().tolist() == [0.0] * 12
    assert run(model, {"x": X})[0].shape == X.shape  # else ONNX Runtime ends the process


def test_a_bias_stays(parse: Parse) -> None:
    model = made(parse, "x", "w", "b")
    assert not GiveAttentionBias()(model).modified


def test_columns_that_are_not_known_stay_without(parse: Parse) -> None:
    model = made(parse, "x", "w")
    model.graph.initializers["w"].shape = None
    assert not GiveAttentionBias()(model).modified


def test_onnxs_own_attention_has_no_bias(parse: Parse) -> None:
    model = made(parse, "x", "w")
    model.graph[0].domain = ""
    assert not GiveAttentionBias()(model).modified
