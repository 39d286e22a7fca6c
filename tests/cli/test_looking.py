from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

import onnxq
from onnxq import targets
from onnxq.language.genai_folder import genai_folder
from tests.examples import network, save
from tests.tiny_decoder import TINY, tiny_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_inspect_needs_no_data_and_shows_every_node(run: Run, model_path: Path) -> None:
    result = run("inspect", model_path)
    assert (result.exit_code, result.stderr) == (0, "")
    for name in ("conv1", "relu1", "conv2", "add", "softmax", "pool", "flatten", "gemm"):
        assert name in result.stdout


def test_inspect_as_json(run: Run, model_path: Path) -> None:
    value = json.loads(run("inspect", model_path, "--json", "--target", "qnnpack").stdout)
    assert value["target"] == "arm64"
    assert {n["decision"] for n in value["nodes"]} == {"integers", "float"}
    assert {"x", "w1", "r1", "y"} <= set(value["tensors"])


def test_targets_are_listed(run: Run) -> None:
    text = run("targets").stdout
    assert all(t.name in text for t in targets.all_targets())
    value = json.loads(run("targets", "--json").stdout)
    assert value["default"] == "portable"
    assert value["aliases"]["fbgemm"] == "x86-avx2"


def test_inspect_says_what_dynamic_quantization_would_do(run: Run, model_path: Path) -> None:
    options = ("--dynamic", "--objective", "size")
    result = run("inspect", model_path, *options)
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "weight_only 1 Gemm int8 weights" in text
    assert "it has no weights" in text
    value = json.loads(run("inspect", model_path, *options, "--json").stdout)
    assert value["objective"] == "size"
    assert "w3" in value["tensors"]


def test_inspect_says_which_nodes_are_left_to_dynamic_quantization(
    run: Run, model_path: Path
) -> None:
    result = run("inspect", model_path, "--set", "op:Gemm=dynamic_int8", "-v")
    text = " ".join(result.stdout.split())
    assert "gemm Gemm dynamic_int8" in text
    assert "dynamic_int8 1 Gemm quantized dynamically" in text


def test_inspect_with_statistics_names_the_forms_and_what_runs(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "s.stats"
    assert run("calibrate", model_path, samples_path, "-o", stats).exit_code == 0
    text = " ".join(run("inspect", model_path, "--stats", stats).stdout.split())
    assert "gemm Gemm int8_float_output" in text
    assert "in integers, 2 (" in text
    value = json.loads(run("inspect", model_path, "--stats", stats, "--json").stdout)
    assert value["execution"]["integer_nodes"]["QGemm"] == 1
    assert {node["precision"] for node in value["nodes"]} >= {"int8", "int8_float_output"}


def test_why_prints_what_each_decider_said_of_a_node(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "s.stats"
    assert run("calibrate", model_path, samples_path, "-o", stats).exit_code == 0
    result = run("inspect", model_path, "--stats", stats, "--why", "gemm", "--json")
    assert [(said["decider"], said["precision"]) for said in json.loads(result.stdout)["why"]] == [
        ("by_conversions", "int8_float_output"),
    ]
    left = ("--why", "gemm", "--exclude", "gemm")
    words = " ".join(run("inspect", model_path, *left).stdout.split())
    assert "by_request float" in words
    assert "outcome float" in words


def test_why_of_an_unknown_node_suggests_the_nearest(run: Run, model_path: Path) -> None:
    result = run("inspect", model_path, "--why", "gem")
    assert result.exit_code != 0
    assert "Did you mean 'gemm'" in result.stderr


def test_what_would_be_done_has_no_meaning_for_a_model_that_is_quantized(
    run: Run, quantized_path: Path
) -> None:
    assert run("inspect", quantized_path).exit_code == 0
    result = run("inspect", quantized_path, "--exclude", "conv1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--set or --exclude has no meaning for a model that is quantized" in result.stderr


def test_a_folder_of_genai_says_its_linear_layers_and_its_cache(run: Run, tmp_path: Path) -> None:
    source = tiny_decoder(dataclasses.replace(TINY, depth=4))
    made = onnxq.quantize_weights(source, group_size=16, check=onnxq.Check.NONE)
    genai_folder(made, tmp_path / "made")
    result = run("inspect", tmp_path / "made")
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "4 bits groups of 16, affine, accuracy level" in said
    assert "past_key_values.*.key (4)" in said
    assert "cache: 4 layers, 1 heads of 16 numbers, float32: 512 B a token" in said
    assert "GroupQueryAttention" in said


@pytest.mark.parametrize(
    "name", ["../secret.onnx", "/etc/passwd", "C:\\secret.onnx", "link.onnx", "n" * 5000, 3, "a\0b"]
)
def test_a_configuration_that_leads_out_of_its_folder_is_refused(
    run: Run, tmp_path: Path, name: object
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    save(network(), tmp_path / "secret.onnx")
    (folder / "link.onnx").symlink_to(tmp_path / "secret.onnx")
    config = {"model": {"decoder": {"filename": name}}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    result = run("inspect", folder)
    assert (result.exit_code, result.stdout) == (3, "")
    assert len(result.stderr) < 1000


def test_a_folder_whose_configuration_names_no_file_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "genai_config.json").write_text("{}")
    result = run("inspect", tmp_path)
    assert result.exit_code == 3
    assert "does not name the decoder's file" in result.stderr
