from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from onnxq.ort.version import OLDEST
from scripts import test_versions as versions
from scripts._same_bytes.nets import make
from scripts._versions import environments
from scripts._versions.checked_files import Checked, checked
from scripts._versions.core_tests import core_files

if TYPE_CHECKING:
    from pathlib import Path


def outcome(said: str, files: Checked) -> versions.Outcome:
    return versions.Outcome("1.30.0", {"facts": said, "contract": "-"}, files, 2.0)


def test_the_first_version_is_the_floor_and_each_is_newer_than_the_one_before() -> None:
    numbers = [tuple(map(int, version.split("."))) for version in versions.VERSIONS]
    assert numbers[0][:2] == OLDEST
    assert numbers == sorted(numbers)
    project = tomllib.loads((versions.ROOT / "pyproject.toml").read_text("utf-8"))
    assert f"onnxruntime>={OLDEST[0]}.{OLDEST[1]}" in project["project"]["dependencies"]


def test_a_failed_test_a_refused_file_and_a_differing_integer_are_not_green() -> None:
    assert outcome("3 passed", Checked(2, 10)).is_green
    assert not outcome("1 failed, 3 passed", Checked(2, 10)).is_green
    assert not outcome("3 passed", Checked(2, 10, 1)).is_green
    assert not outcome("3 passed", Checked(2, 10, refused=["a.onnx"])).is_green


def test_the_table_says_how_many_files_run() -> None:
    text = versions.table([outcome("3 passed", Checked(2, 10, refused=["a.onnx"]))])
    assert text.splitlines()[2] == "| 1.30.0 | 3 passed | - | 1 of 2 | 10 | 0 | 2 |"


def test_files_are_checked_where_they_are_and_float_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "float.onnx").write_bytes(b"")
    (tmp_path / "broken.onnx").write_bytes(b"x")
    found = checked(tmp_path)
    assert (found.files, found.refused) == (1, ["broken.onnx"])


def test_floors_are_the_declared_ones_and_newest_leaves_them_open() -> None:
    floors = environments.requirements("floors")
    assert f"onnxruntime=={OLDEST[0]}.{OLDEST[1]}" in floors
    assert len(floors) == len(environments.dependencies())
    assert environments.requirements("newest") == environments.dependencies()


def test_core_tests_import_no_torch_themselves_or_through_others() -> None:
    files = core_files()
    assert "tests/test_affine.py" in files
    assert "tests/observers/test_value_range.py" not in files  # imports torch
    assert "tests/pytorch/test_export.py" not in files


def test_an_environment_without_interpreter_is_said_and_is_no_failure(tmp_path: Path) -> None:
    found = environments.run("floors", "3.0", tmp_path, 1)
    assert found.is_green
    assert "| floors | 3.0 | not run: no such interpreter here | 0 |" in environments.table([found])
    assert not environments.Environment("floors", "3.11", "1 failed, 2 passed", True).is_green
    assert not environments.Environment("floors", "3.11", "failed to install: x", True).is_green


@pytest.mark.nightly
@pytest.mark.parametrize("python", environments.PYTHONS)
@pytest.mark.parametrize("kind", environments.KINDS)
def test_the_core_tests_pass_in_every_environment(kind: str, python: str, tmp_path: Path) -> None:
    """Needs the packages from PyPI."""
    found = environments.run(kind, python, tmp_path, versions.PART)
    if not found.has_run:
        pytest.skip(found.said)
    assert found.is_green, found.said


@pytest.mark.nightly
@pytest.mark.parametrize("version", versions.VERSIONS)
def test_a_version_of_onnxruntime_runs_what_is_written(version: str, tmp_path: Path) -> None:
    """Needs the wheels: from .cache/onnxruntime, else from PyPI."""
    for net in versions.NETS:
        (tmp_path / net).mkdir()
        make(net, tmp_path / net)
    found = versions.run(version, tmp_path)
    assert found.is_green, (found.parts, found.files.problems)
