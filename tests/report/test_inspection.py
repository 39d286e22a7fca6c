"""The value behind `onnxq inspect`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

import onnxq
from onnxq.report.inspection import Inspection, QuantizedFile
from tests.examples import images, network, quantized_matmul

if TYPE_CHECKING:
    import pytest


def test_a_float_model_has_a_form_for_every_node() -> None:
    model = network()
    found = onnxq.inspect(model, target="x86-vnni")
    assert isinstance(found, Inspection)
    assert len(found.summary.nodes) == len(model.graph.node)
    assert repr(found).startswith("Inspection(x86-vnni: 9 nodes: int8 ")
    assert found.execution is None
    json.dumps(found.to_dict())


def test_with_statistics_it_says_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    statistics = onnxq.calibrate(onnxq.prepare(model), {"x": images(2)})
    found = onnxq.inspect(model, statistics=statistics)
    assert isinstance(found, Inspection)
    assert found.execution is not None
    found.print()
    assert "kernels that ONNX Runtime runs here: 7 (" in capsys.readouterr().out


def test_a_quantized_model_is_described() -> None:
    assert isinstance(onnxq.inspect(quantized_matmul(np.array(3, np.uint8))), QuantizedFile)
