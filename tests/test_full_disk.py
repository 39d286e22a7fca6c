"""Disks that fill: one line with the path, the room and the remedy; no file is begun or changed."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import onnxq
from onnxq.cli import main
from onnxq.errors import OutputError
from onnxq.metrics import as_samples
from tests.dynamic_models import normal, parsed
from tests.tiny_decoder import tiny_decoder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH = 128
MATMULS = parsed(
    f"g (float[n, {WIDTH}] x) => (float[n, {WIDTH}] y) {{ h = MatMul(x, w)\n y = MatMul(h, v) }}",
    {"w": normal(WIDTH, WIDTH), "v": normal(WIDTH, WIDTH, seed=1)},
)
DISK_BYTES = 8192
"""Room of the disk: two pages, less than any of the files."""

COMMANDS = {
    "quantize": ("quantize", "{m}.onnx", "{m}.npz", "-o", "{out}/q.onnx"),
    "quantize-dynamic": (
        *("quantize-dynamic", "{m}.onnx", "--objective", "size", "-o", "{out}/q.onnx"),
    ),
    "quantize-weights": ("quantize-weights", "{m}.onnx", "-o", "{out}/q.onnx"),
    "gptq": ("quantize-weights", "{m}.onnx", "{m}.npz", "-o", "{out}/q.onnx"),
    "quantize-cache": ("quantize-cache", "{d}.onnx", "{d}.npz", "-o", "{out}/q.onnx"),
    "genai-folder": ("genai-folder", "{d}.onnx", "-o", "{out}/folder"),
    "export": (
        *("export", "tests.test_full_disk:module", "--input", "input=float32[2,128]"),
        *("-o", "{out}/q.onnx"),
    ),
}
CASES = [
    pytest.param(name, marks=[pytest.mark.oracle] if name == "export" else []) for name in COMMANDS
]


def module() -> object:
    """A layer of torch that the command export makes."""
    import torch

    return torch.nn.Linear(WIDTH, WIDTH)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder of DISK_BYTES."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs"]
    try:
        subprocess.run(["mount", *options, folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small disk is mounted by root alone")
    yield folder
    subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def short_files(size_bytes: int) -> Iterator[None]:
    """No file may be larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def arguments(command: str, tmp_path: Path, out: Path) -> list[str]:
    """The words of a command on models in tmp_path."""
    onnx.save(MATMULS, tmp_path / "m.onnx")
    np.savez(tmp_path / "m.npz", x=normal(16, WIDTH, seed=5))
    model = tiny_decoder()
    onnxq.save(model, tmp_path / "d.onnx")
    texts: dict[str, Any] = dict(as_samples(model, np.arange(20).reshape(2, 10)))
    np.savez(tmp_path / "d.npz", **texts)
    places = {"m": tmp_path / "m", "d": tmp_path / "d", "out": out}
    return [part.format(**places) for part in COMMANDS[command]]


@pytest.mark.parametrize("command", CASES)
def test_a_full_disk_is_said_with_its_room_and_nothing_is_left(
    command: str, tmp_path: Path, disk: Path
) -> None:
    result = CliRunner().invoke(main, arguments(command, tmp_path, disk))
    assert result.exit_code == OutputError.exit_code, result.output
    [said] = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert said.startswith(f"Error: '{disk}/")
    assert ".tmp'" not in said, "the file is named that the user asked for"
    assert "cannot be written: No space left on device: " in said
    assert " were free, " in said
    assert "Free some space, or choose another place." in said
    assert not list(disk.iterdir())


@pytest.mark.parametrize("command", CASES)
def test_a_limit_on_files_is_said_and_nothing_is_left(command: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    words = arguments(command, tmp_path, out)
    with short_files(1000):
        result = CliRunner().invoke(main, words)
    assert result.exit_code == OutputError.exit_code, result.output
    assert "stdout" not in result.stderr
    assert "limit on the size of files" in result.stderr
    assert not list(out.iterdir())


def test_a_journal_on_a_full_disk_keeps_what_it_has(tmp_path: Path, disk: Path) -> None:
    words = [*arguments("quantize-weights", tmp_path, tmp_path), "--journal", f"{disk}/integers"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == OutputError.exit_code, result.output
    assert f"'{disk}/integers' cannot be written: No space left" in result.stderr
    assert "the next run goes on from them" in result.stderr
    assert not (tmp_path / "q.onnx").exists()


def test_a_folder_for_genai_keeps_its_files_where_the_new_ones_do_not_fit(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    words = arguments("genai-folder", tmp_path, tmp_path)
    assert CliRunner().invoke(main, words).exit_code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with short_files(10_000):  # more than the tokenizer, and less than the model
        result = CliRunner().invoke(main, [*words, "--context", "16"])
    assert result.exit_code == OutputError.exit_code
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
