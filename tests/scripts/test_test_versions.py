from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from onnxq.ort.version import OLDEST
from scripts import test_versions as versions
from scripts._same_bytes.nets import make
from scripts._versions.checked_files import Checked, checked

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


@pytest.mark.nightly
@pytest.mark.parametrize("version", versions.VERSIONS)
def test_a_version_of_onnxruntime_runs_what_is_written(version: str, tmp_path: Path) -> None:
    """Needs the wheels: from .cache/onnxruntime, else from PyPI."""
    for net in versions.NETS:
        (tmp_path / net).mkdir()
        make(net, tmp_path / net)
    found = versions.run(version, tmp_path)
    assert found.is_green, (found.parts, found.files.problems)
