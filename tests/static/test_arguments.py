from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

import onnxq
from onnxq.checking.findings import Findings
from onnxq.errors import CalibrationError, ModelError, OutputError, QConfigError
from onnxq.qconfig import QConfigMapping, get_default_qconfig
from onnxq.static.statistics import Statistics
from onnxq.times import Costs
from onnxq.tuning.scoring.score import Score
from tests.examples import images, network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.oracle

SAMPLES = {"x": images(2)}


@pytest.mark.parametrize(
    ("qconfig", "words"),
    [
        ("x86", r"is a str \('x86'\); wanted .*\. Write default_qconfig_mapping\('x86'\)"),
        ("x68", r"is a backend's.* Did you mean 'x86'\?"),
        (3, r"qconfig is an int; wanted .*None is onnxq's default"),
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


@pytest.mark.parametrize("excluded", [3, "fc", None, [3], b"fc"])
def test_excluded_nodes_are_a_list_of_names(excluded: object) -> None:
    with pytest.raises(QConfigError, match="wanted a list of names of nodes"):
        onnxq.quantize(network(), SAMPLES, exclude=cast("Any", excluded))


@pytest.mark.parametrize("name", [3, ["qdq"], None, True, "qdp"])
def test_an_unknown_format_is_told_which_there_are(name: object) -> None:
    with pytest.raises(QConfigError, match="is not known; known: qdq, qoperator"):
        onnxq.quantize(network(), SAMPLES, format=cast("Any", name))


@pytest.mark.parametrize("runs", [0, -1, 1.5, "5"])
def test_runs_of_bench_are_a_whole_number(runs: object) -> None:
    with pytest.raises(CalibrationError, match="wanted a whole number, 1 or more"):
        onnxq.bench(network(), network(), runs=cast("Any", runs))


@pytest.mark.parametrize(
    ("option", "value"),
    [("bits", "4"), ("bits", 4.0), ("group_size", "32"), ("group_size", None), ("group_size", True),
     ("accuracy_level", 4.0), ("size", "4"), ("size", [1]), ("format", 3),
     ("scheme", "afine")],
)  # fmt: skip
def test_options_of_stored_weights_of_a_wrong_type_are_refused(option: str, value: object) -> None:
    with pytest.raises(QConfigError, match=r"got|is not known; known: "):
        onnxq.quantize_weights(network(), SAMPLES, **cast("Any", {option: value}))


def test_progress_is_a_function_and_only_a_list_wherever_they_are_given() -> None:
    model, given = network(), cast("Any", 3)
    calls: list[Callable[[], object]] = [
        lambda: onnxq.calibrate(onnxq.prepare(model), SAMPLES, progress=given),
        lambda: onnxq.verify(model, model, SAMPLES, progress=given),
        lambda: onnxq.cross_check(model, SAMPLES, progress=given),
        lambda: onnxq.predict(model, SAMPLES, progress=given),
    ]
    for call in calls:
        with pytest.raises(QConfigError, match="progress is an int; wanted a function"):
            call()
    for threads in (0, "4", True, 1.5):
        with pytest.raises(QConfigError, match=r"threads: got .*; wanted a whole number from 1"):
            onnxq.calibrate(onnxq.prepare(model), SAMPLES, threads=cast("Any", threads))
    for only in (given, "y"):
        with pytest.raises(QConfigError, match=r"only: got .*; wanted a list of globs"):
            onnxq.verify(model, model, SAMPLES, only=only)


def test_what_is_no_path_is_told_so_where_files_are_read_and_written() -> None:
    given = cast("Any", 5)
    for write in (onnxq.quantize(network(), SAMPLES).save, Score(1.0, {}, 1).save):
        with pytest.raises(OutputError, match="the file to write is an int; wanted a text or a"):
            write(given)
    for read in (Costs.load, Statistics.load, Findings.load):
        with pytest.raises((QConfigError, CalibrationError), match="it is an int, and no path"):
            read(given)
