"""A quantized file is described, whoever wrote it, also where ONNX Runtime does not run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from onnxq.report.detail import Detail, showing
from onnxq.report.inspection import look_at
from tests.examples import network, quantized_matmul

if TYPE_CHECKING:
    import pytest


def foreign() -> ir.Model:
    """A model that no metadata of onnxq call quantized."""
    return ir.from_proto(quantized_matmul(np.array(3, np.uint8)))


def test_a_float_model_is_none() -> None:
    assert look_at(ir.from_proto(network())) is None


def test_a_file_of_another_tool_tells_weights_activations_and_what_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = look_at(foreign())
    assert found is not None
    found.print()
    text = " ".join(capsys.readouterr().out.split())
    assert "quantized; written by a program without a name" in text
    assert "read by integers scales weights size MatMul int8" in text
    assert "runs here: 1 (QLinearMatMul 1) in integers" in text
    assert repr(found).endswith("1 in integers)")
    assert found.to_dict()["format"] == ""


def test_every_weight_has_a_row_where_all_is_to_be_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = look_at(foreign())
    assert found is not None
    with showing(Detail.WHOLE):
        found.print()
    assert "read by" in capsys.readouterr().out


def test_what_onnx_runtime_refuses_is_described_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    node = helper.make_node("QLinearFrob", ["x", "w"], ["y"], domain="com.microsoft")
    weight = numpy_helper.from_array(np.ones((2, 2), np.int8), "w")
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    found = look_at(ir.from_proto(helper.make_model(graph, opset_imports=opsets)))
    assert found is not None
    assert found.execution is None
    found.print()
    assert "ONNX Runtime does not run it here" in capsys.readouterr().out
    assert repr(found).endswith("does not run)")
