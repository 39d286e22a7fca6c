from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

import onnxq
from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.qconfig import QConfigMapping, get_default_qconfig
from tests.examples import images, network

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle

SAMPLES = {"x": images(2)}


@pytest.mark.parametrize(
    ("qconfig", "words"),
    [
        ("x86", r"is a str \('x86'\); wanted an onnxq.qconfig.QConfigMapping\. .*backend"),
        ("q.yaml", r"q\.yaml"),
        ({"": None}, r"qconfig is a dict; wanted .*QConfigMapping\.from_dict"),
        (get_default_qconfig(), r"Write QConfigMapping\(qconfig\)"),
    ],
)
def test_what_is_no_mapping_is_told_how_to_make_one(qconfig: object, words: str) -> None:
    with pytest.raises(QConfigError, match=words):
        onnxq.quantize(network(), SAMPLES, qconfig=cast("Any", qconfig))


def test_a_qconfig_may_be_the_path_of_a_yaml_file_as_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "some.yaml"
    path.write_text("op_types: {Conv: float}")
    read = QConfigMapping.from_yaml(path)
    assert onnxq.prepare(network(), path).qconfig == read
    assert onnxq.prepare(network(), str(path)).qconfig == read
    of_backend = onnxq.prepare(network(), path, "fbgemm").qconfig
    assert of_backend.global_qconfig == get_default_qconfig("fbgemm")


def test_a_pytorch_module_is_sent_to_export() -> None:
    with pytest.raises(ModelError, match=r"model is a ReLU; .*onnxq\.export\(module"):
        onnxq.quantize(cast("Any", torch.nn.ReLU()), SAMPLES)


@pytest.mark.parametrize("source", ["t.onnx", network()], ids=["path", "model"])
def test_calibrate_sends_a_model_to_prepare(source: object) -> None:
    with pytest.raises(ModelError, match=r"calibrate: .* prepared = onnxq\.prepare\(model\)"):
        onnxq.calibrate(cast("Any", source), SAMPLES)


def test_swapped_and_missing_arguments_of_plan_are_named() -> None:
    prepared = onnxq.prepare(network())
    statistics = onnxq.calibrate(prepared, SAMPLES)
    with pytest.raises(ModelError, match=r"plan: the first argument is a Statistics; .*prepare"):
        onnxq.plan(cast("Any", statistics), cast("Any", prepared))
    with pytest.raises(CalibrationError, match=r"plan: the statistics are a dict; .*calibrate\("):
        onnxq.plan(prepared, cast("Any", SAMPLES))
    with pytest.raises(ModelError, match=r"convert: the first argument is a str"):
        onnxq.convert(cast("Any", "t.onnx"))
