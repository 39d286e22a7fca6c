"""Folders of images become inputs as the model takes them, and as training made them."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from onnxq.samples import InputSpec, Samples, open_samples
from onnxq.samples.images import Images

if TYPE_CHECKING:
    from pathlib import Path

FLOAT, BYTES = np.dtype(np.float32), np.dtype(np.uint8)
PLANES = InputSpec("x", FLOAT, ("N", 3, 4, 6))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images, of one colour each: red, grey, and a transparent one within a folder."""
    Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / "a.png")
    Image.new("L", (12, 8), 51).save(tmp_path / "b.jpg", quality=100)
    (tmp_path / "c").mkdir()
    Image.new("RGBA", (60, 60), (0, 0, 255, 128)).save(tmp_path / "c" / "d.PNG")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def batches(images: Images, spec: InputSpec, size: int | None = None) -> list[np.ndarray]:
    return [batch["x"] for batch in open_samples(Samples(images, size), (spec,))]


def test_images_are_sorted_sized_and_normalized(folder: Path) -> None:
    images = Images(folder, mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.5))
    found = batches(images, PLANES)
    assert [x.shape for x in found] == [(1, 3, 4, 6)] * 3
    assert found[0][0, :, 0, 0].tolist() == [1.0, -2.0, -1.0]
    np.testing.assert_allclose(found[1][0, :, 3, 5], [-0.6, -1.2, -0.6], atol=1 / 128)
    assert found[2][0, :, 2, 2].tolist() == [-1.0, -2.0, 1.0]


def test_the_model_says_layout_colours_and_type(folder: Path) -> None:
    last = batches(Images(folder), InputSpec("x", FLOAT, ("N", 4, 6, 3)), 3)
    assert last[0].shape == (3, 4, 6, 3)
    assert last[0][0, 0, 0].tolist() == [1.0, 0.0, 0.0]
    grey = batches(Images(folder), InputSpec("x", BYTES, (1, 1, 4, 6)))
    assert grey[0].dtype == np.uint8
    assert grey[0].ravel()[0] == 76  # the luma of red


def test_what_is_wider_than_the_model_wants_is_cut_around_its_centre(tmp_path: Path) -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    (found,) = batches(Images(tmp_path), InputSpec("x", FLOAT, ("N", 3, 4, 4)))
    assert found.min() == 1.0


def test_an_open_size_is_asked_for_and_another_than_the_models_refused(folder: Path) -> None:
    spec = InputSpec("x", FLOAT, ("N", 3, "H", "W"))
    with pytest.raises(CalibrationError, match="Give a size"):
        batches(Images(folder), spec)
    assert batches(Images(folder, size=(2, 3)), spec)[0].shape == (1, 3, 2, 3)
    with pytest.raises(CalibrationError, match="got the size"):
        batches(Images(folder, size=(2, 3)), PLANES)


@pytest.mark.parametrize(
    "spec", [InputSpec("x", FLOAT, ("N", 5)), InputSpec("x", np.dtype(np.int64), ("N", 3, 4, 4))]
)
def test_a_model_of_no_images_is_refused(folder: Path, spec: InputSpec) -> None:
    with pytest.raises(CalibrationError, match="the model wants 'x'"):
        batches(Images(folder), spec)


def test_bad_files_and_folders_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "0.png").write_bytes(b"no image")
    with pytest.raises(CalibrationError, match=r"0\.png' cannot be read"):
        batches(Images(folder), PLANES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CalibrationError, match="no images; wanted files that end with"):
        batches(Images(tmp_path / "empty"), PLANES)
    with pytest.raises(CalibrationError, match="there is no such folder"):
        batches(Images(tmp_path / "none"), PLANES)


def test_a_file_that_pillow_would_run_is_no_image(folder: Path) -> None:
    Image.new("RGB", (6, 4)).save(folder / "c" / "evil.png", format="EPS")
    with pytest.raises(CalibrationError, match=r"evil\.png' cannot be read"):
        batches(Images(folder), PLANES)


def test_an_image_of_too_many_pixels_is_refused(folder: Path) -> None:
    size = (40_000).to_bytes(4, "big") * 2
    head = b"IHDR" + size + b"\x08\x02\0\0\0"
    png = b"\x89PNG\r\n\x1a\n\0\0\0\r" + head + zlib.crc32(head).to_bytes(4, "big")
    (folder / "bomb.png").write_bytes(png + b"\0\0\0\0IEND\xaeB`\x82")
    with pytest.raises(CalibrationError, match=r"bomb\.png' cannot be read"):
        batches(Images(folder), PLANES)


def test_a_folder_of_images_says_what_is_missing(folder: Path) -> None:
    with pytest.raises(CalibrationError, match="with --image-mean and --image-std"):
        open_samples(folder, (PLANES,))


def test_bad_numbers_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="wanted \\(height, width\\)"):
        Images(tmp_path, size=(0, 3))
    with pytest.raises(QConfigError, match="2 means and 3 stds"):
        Images(tmp_path, mean=(0, 0), std=(1, 1, 1))


def test_without_pillow_the_command_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedError, match="Run: pip install 'pillow>=10'"):
        batches(Images(folder), PLANES)
