from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import numpy as np
import pytest

from onnxq.cli.io_options import InputsOutputs, io_options

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

RNG = np.random.default_rng(0)
IMAGENET = ("--pixels-mean", "0.485,0.456,0.406", "--pixels-std", "0.229,0.224,0.225")


def test_pixels_go_through_every_command(run: Run, model_path: Path, tmp_path: Path) -> None:
    """From raw bytes to a model that takes them; floats that stand for them are taken, too."""
    pixels = RNG.integers(0, 256, (8, 3, 8, 8), dtype=np.uint8)
    mean, std = (np.array(n.split(","), np.float64).reshape(3, 1, 1) for n in IMAGENET[1::2])
    np.savez(tmp_path / "p.npz", x=pixels)
    np.savez(tmp_path / "f.npz", x=((pixels / 255 - mean) / std).astype(np.float32))
    wishes = ("--quantized-input", "x=pixels", *IMAGENET, "--quantized-output", "y")
    checked = ("--check", tmp_path / "p.npz", "--min-sqnr", "15")
    stats, made = tmp_path / "x.stats", tmp_path / "q.onnx"
    for command in (
        ("inspect", model_path, *wishes),
        ("calibrate", model_path, tmp_path / "f.npz", "-o", stats, *wishes),
        ("quantize", model_path, "--stats", stats, "-o", made, *wishes, *checked),
        ("verify", model_path, made, tmp_path / "p.npz", "--min-sqnr", "5"),
        ("verify", model_path, made, tmp_path / "f.npz", "--only", "y"),
        ("cross-check", made, tmp_path / "f.npz"),
        ("predict", made, tmp_path / "p.npz", "--machines", "x86-vnni"),
        ("bench", model_path, made, "--runs", "1"),
        ("bench", model_path, made, tmp_path / "f.npz", "--runs", "1"),
    ):
        result = run(*command)
        assert result.exit_code == 0, result.stderr
    shown = " ".join(run("inspect", made).stdout.split())  # its cell takes several rows
    assert "uint8 pixels q, for (q - (123.675, 116.28, 103.53))" in shown
    io = json.loads(run("inspect", made, "--json").stdout)["io"]
    assert [(x["name"], x["type"][:5]) for x in io] == [("x", "uint8"), ("y", "uint8")]
    assert "uint8 integers q" in io[1]["meaning"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (IMAGENET[:2], "--pixels-mean has no meaning without"),
        (
            ("--quantized-input", "x=integers", "--pixels-scale", "1"),
            "--pixels-scale has no meaning",
        ),
        (("--quantized-input", "x"), "wanted NAME=pixels|integers"),
        (
            ("--quantized-input", "x=pixels", "--pixels-mean", "a"),
            "wanted numbers, as in 0.5,1/255",
        ),
        (("--quantized-input", "x=pixels", "--pixels-scale", "1,2"), "got 2 numbers; wanted one"),
    ],
)
def test_options_that_say_nothing_are_refused(
    options: tuple[str, ...], message: str, run: Run, model_path: Path
) -> None:
    result = run("inspect", model_path, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_words_of_the_options_give_the_same_options() -> None:
    io = InputsOutputs({"x": "pixels"}, ("y",), (-0.5, 0.25), None, (1 / 255,))
    assert _read(io.words) == io


def _read(words: list[str]) -> InputsOutputs:
    found: list[InputsOutputs] = []

    def keep(io: InputsOutputs) -> None:
        found.append(io)

    click.command()(io_options(keep)).main(words, standalone_mode=False)
    return found[0]
