"""Folders of images as SAMPLES, in the commands that take samples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from onnxq.cli.samples_options import image_arguments
from onnxq.samples.images import Images

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.mkdir()
    rng = np.random.default_rng(0)
    for i in range(4):
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path / f"{i}.png")
    return path


def test_a_folder_of_images_is_calibrated_on_and_verified(
    run: Run, model_path: Path, folder: Path, tmp_path: Path
) -> None:
    options = ("--image-mean", "0.5,0.5,0.5", "--image-std", "0.25")
    made = tmp_path / "q.onnx"
    result = run("quantize", model_path, folder, "-o", made, *options, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["verdict"]["samples_in_all"] == 4
    assert run("verify", model_path, made, folder, *options, "--min-sqnr", 15).exit_code == 0
    assert run("cross-check", made, folder, *options, "--batch-size", 4).exit_code == 0


def test_without_the_options_they_are_named(run: Run, model_path: Path, folder: Path) -> None:
    result = run("calibrate", model_path, folder, "-o", folder.parent / "s.stats")
    assert result.exit_code == 6
    assert "--image-mean and --image-std" in result.stderr


@pytest.mark.parametrize("wrong", [("--image-size", "0"), ("--image-mean", "a,b")])
def test_what_is_no_number_is_wrong_usage(
    run: Run, model_path: Path, folder: Path, wrong: tuple[str, str]
) -> None:
    output = folder.parent / "s.stats"
    assert run("calibrate", model_path, folder, "-o", output, *wrong).exit_code == 2


def test_the_words_give_the_same_images_again() -> None:
    images = Images("folder", (4, 6), (0.5,), (0.25, 0.25, 0.5))
    assert image_arguments(images) == [
        "--image-mean=0.5",
        "--image-std=0.25,0.25,0.5",
        "--image-size=4,6",
    ]
    assert image_arguments("folder") == []
