from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.times import costs_of
from tests.examples import images, network, save

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.cli.conftest import Run

pytestmark = pytest.mark.slow  # each searches once: calibration, sensitivity and some runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tune")
    save(network(), made / "m.onnx")
    table = costs_of("x86-vnni")
    assert table is not None
    table.save(made / "costs.csv")
    np.savez(made / "x.npz", x=images(16), labels=np.arange(16) % 10)
    return made


def test_tune_writes_what_quantize_writes_with_its_qconfig(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    front = tmp_path / "front"
    command = ["tune", folder / "m.onnx", folder / "x.npz", "-o", tmp_path / "q.onnx"]
    more = ["--min-sqnr", 35, "--front", front, "--save-qconfig", tmp_path / "q.yaml"]
    more += ["--target", "x86-vnni", "--costs", folder / "costs.csv"]
    more += ["--quantized-output", "y", "--annotations", "kept"]
    result = run(*command, *more, "--journal", tmp_path / "journal")
    assert result.exit_code == 0, result.output
    assert "held apart" in result.stdout or "every 4th" in result.stdout
    again = next_command(result)
    assert again.startswith("again: onnxq quantize")
    words = shlex.split(again.removeprefix("again: onnxq ").replace(f"{tmp_path}/q.onnx", "AGAIN"))
    second = run(*[tmp_path / "again.onnx" if word == "AGAIN" else word for word in words])
    assert second.exit_code == 0, second.output
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    points = json.loads((front / "front.json").read_text("utf-8"))
    assert [(front / point["file"]).is_file() for point in points] == [True] * len(points)
    last = [*command[:-1], tmp_path / "r.onnx", *more, "--journal", tmp_path / "journal"]
    resumed = run(*last, "--json")
    assert (tmp_path / "r.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    assert json.loads(resumed.stdout)["missed"] == []


def next_command(result: Result) -> str:
    """The command that makes the file anew."""
    (found,) = [line for line in result.stdout.splitlines() if line.startswith("again: ")]
    return found


def test_a_qconfig_that_is_not_kept_is_no_part_of_a_command(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    command = ["tune", folder / "m.onnx", folder / "x.npz", "-o", tmp_path / "q.onnx"]
    result = run(*command, "--costs", folder / "costs.csv", "--max-runs", 1)
    assert result.exit_code == 0, result.output
    assert "again: " not in result.stdout


def test_goal_out_of_reach_writes_no_model_but_the_front(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    command = ["tune", folder / "m.onnx", folder / "x.npz", "-o", tmp_path / "q.onnx"]
    bounds = ["--min-sqnr", 200, "--max-time", 0.01, "--max-runs", 9]
    times = ["--target", "x86-vnni", "--costs", folder / "costs.csv"]
    result = run(*command, *bounds, *times, "--front", tmp_path / "front")
    assert result.exit_code == 8
    assert "the goal was not reached" in result.stderr
    assert "Set a wider bound, " in result.stderr
    assert not (tmp_path / "q.onnx").exists()
    assert (tmp_path / "front" / "point-1.yaml").is_file()
    chosen = json.loads((tmp_path / "front" / "front.json").read_text("utf-8"))
    again = next_command(result)
    assert any(f"--qconfig {tmp_path / 'front' / point['file']} " in again for point in chosen)


def test_a_search_that_ends_late_is_not_advised_to_take_more_runs(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    command = ["tune", folder / "m.onnx", folder / "x.npz", "-o", tmp_path / "q.onnx"]
    times = ["--target", "x86-vnni", "--costs", folder / "costs.csv"]
    result = run(*command, *times, "--min-sqnr", 200, "--max-runs", 1, "--max-seconds", 0.001)
    assert result.exit_code == 8
    assert "allow a larger --max-seconds" in result.stderr.replace("\n", " ")
    assert "--max-runs" not in result.stderr


def test_a_bound_that_samples_held_apart_miss_is_said_with_the_one_to_ask_for(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    with np.load(folder / "x.npz") as samples:
        np.savez(tmp_path / "wide.npz", **{name: 3 * x for name, x in samples.items()})
    command = ["tune", folder / "m.onnx", folder / "x.npz", "--check", tmp_path / "wide.npz"]
    options = ["--target", "x86-vnni", "--costs", folder / "costs.csv", "--json"]
    low = (*options, "--min-sqnr", 1, "-o", tmp_path / "a.onnx")
    found = json.loads(run(*command, *low).stdout)
    scores = found["score"], found["held_apart"]["score"]
    shown_db, apart_db = (min(map(float, s["sqnr_db"].values())) for s in scores)
    assert shown_db > apart_db
    bound_db = round((shown_db + apart_db) / 2, 1)
    result = run(*command, *options, "--min-sqnr", bound_db, "-o", tmp_path / "b.onnx")
    assert result.exit_code == 8
    told = result.stderr.rpartition("--min-sqnr ")[2].strip(" .\n")
    assert float(told) > bound_db


def test_front_that_cannot_be_written_is_refused_before_the_search(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    command = ["tune", folder / "m.onnx", tmp_path / "none.npz", "-o", tmp_path / "q.onnx"]
    result = run(*command, "--front", tmp_path / "file" / "front")
    assert result.exit_code == 9
    assert "'file' is a file" in result.stderr.replace(f"{tmp_path}/", "")
    result = run(*command, "--front", tmp_path / "missing" / "front")
    assert result.exit_code == 9
    assert "folder 'missing' does not exist" in result.stderr.replace(f"{tmp_path}/", "")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("names", [",", "bias,,round", "bias,"])
def test_an_improvement_without_a_name_is_refused_with_those_there_are(
    run: Run, folder: Path, tmp_path: Path, names: str
) -> None:
    for command in ("tune", "quantize"):
        paths = [folder / "m.onnx", folder / "x.npz", "-o", tmp_path / "q.onnx"]
        result = run(command, *paths, "--improve", names)
        assert result.exit_code == 5
        said = " ".join(result.stderr.split())
        assert "PTQ algorithm '' is not known; known: auto, bias, " in said


def test_drop_of_a_metric_without_a_float_value_is_refused(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    result = run("tune", folder / "m.onnx", folder / "x.npz", "-o", tmp_path / "q", "--max-drop", 1)
    assert result.exit_code == 5
    assert "Name a metric" in result.stderr


def test_held_apart_samples_contradict_others_to_check_on(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    npz = folder / "x.npz"
    common = (folder / "m.onnx", npz, "-o", tmp_path / "q", "--ignore", "labels")
    for command in ("quantize", "tune"):
        result = run(command, *common, "--hold-apart", 4, "--check", npz)
        assert result.exit_code == 2
        assert "--hold-apart" in result.stderr


def test_again_has_every_option_that_the_bytes_follow_from(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    made, saved = tmp_path / "q.onnx", tmp_path / "q.yaml"
    pixels = np.random.default_rng(0).integers(0, 256, images(8).shape, np.uint8)
    np.savez(tmp_path / "p.npz", x=pixels)
    command = ["tune", folder / "m.onnx", tmp_path / "p.npz", "-o", made, "--save-qconfig", saved]
    more = ["--costs", folder / "costs.csv", "--max-runs", 2, "--objective", "size"]
    ends = ["--quantized-input", "x=pixels", "--pixels-mean", "0.5", "--quantized-output", "y"]
    result = run(*command, *more, *ends, "--annotations", "kept")
    assert result.exit_code == 0, result.output
    words = shlex.split(next_command(result).removeprefix("again: onnxq "))
    second = run(*[tmp_path / "again.onnx" if word == str(made) else word for word in words])
    assert second.exit_code == 0, second.output
    assert (tmp_path / "again.onnx").read_bytes() == made.read_bytes()
    verdicts = [re.search(r"\d+% of the float", each.stdout) for each in (result, second)]
    assert verdicts[0] is not None
    assert verdicts[1] is not None
    assert verdicts[0][0] == verdicts[1][0]  # sizes are those of the files
