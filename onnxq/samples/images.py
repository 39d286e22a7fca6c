"""Samples from a folder of images: read with Pillow, cut to the model's size, made its numbers.

x = (p * scale - mean) / std        p: pixels, 0 to 255

calibration/cat/1.jpg               Images("calibration", size=(224, 224),
calibration/dog/2.png                      mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import CalibrationError, UnsupportedError, first_line
from onnxq.page.card import card_of
from onnxq.qconfig.quantized_input import PIXEL_SCALE, Pixels
from onnxq.samples.inputs import InputSpec, only_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from PIL import Image

    from onnxq.core.arrays import Array

SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"])
_FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM")
"""Formats of pixels alone: whatever a file is called, Pillow runs Ghostscript for an EPS."""
MODES = {1: "L", 3: "RGB"}
"""Channels -> Pillow's name of the colours."""
IMAGE_RANK = 4  # (N, C, H, W) or (N, H, W, C)


@dataclass(frozen=True, slots=True)
class Images:
    """Folder of images, and how they become inputs of a model.

    Each is turned as its EXIF tag says, scaled so that it covers the size, and cut to it around its
    centre. The layout, (N, C, H, W) or (N, H, W, C), and the colours are those of the model; an
    input of uint8 gets the pixels as they are.

    Attributes:
        folder: that has them; images in folders within it are taken, too, in the order of paths.
        size: (height, width); None: the model's.
        mean: one number, or one per channel.
        std: one number, or one per channel; above 0.
        scale: what pixels are multiplied by; 1 where mean and std are given in pixels.
    Raises:
        CalibrationError: a size that is none.
        QConfigError: means and stds that do not fit together.
    """

    folder: str | Path
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = PIXEL_SCALE

    _repr_html_ = card_of

    def __post_init__(self) -> None:
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise CalibrationError(
                f"images '{self.folder}': size {self.size}; wanted (height, width), 1 or more."
            )
        self.pixels  # noqa: B018  # refuses numbers that do not fit

    @property
    def pixels(self) -> Pixels:
        """How pixels become numbers."""
        return Pixels(self.mean, self.std, self.scale)

    def __fspath__(self) -> str:
        return os.fspath(self.folder)

    def arrays(self, inputs: Sequence[InputSpec]) -> ImageArrays:
        """The images as samples of a model with one input.

        Raises:
            CalibrationError: the model has several inputs, or one that is no image; its size is
                open and none is given, or another one; there are no images.
            UnsupportedError: Pillow is not installed.
        """
        where = f"images '{self.folder}'"
        try:
            import PIL  # noqa: F401  # asked now, not at the first image
        except ImportError as error:
            raise UnsupportedError(
                f"{where}: Pillow is not installed ({error}). Run: pip install 'pillow>=10'"
            ) from error
        form = _form_of(only_input(inputs, where), self.size, where)
        return ImageArrays(tuple(image_files(Path(self.folder), where)), form, self.pixels)


@dataclass(frozen=True, slots=True)
class ImageForm:
    """Form of a model's input that is an image."""

    height: int
    width: int
    channels: int
    has_channels_last: bool
    dtype: np.dtype[np.generic]


@dataclass(frozen=True, slots=True)
class ImageArrays:
    """Images of files, one array without a batch axis each, read as they are gone through."""

    files: tuple[Path, ...]
    form: ImageForm
    pixels: Pixels

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[Array]:
        for file in self.files:
            yield self._numbers(_read(file, self.form))

    def _numbers(self, pixels: Array) -> Array:
        """Input of one image of shape (H, W, C)."""
        if self.form.dtype == np.uint8:
            numbers = pixels
        else:
            scaled = pixels.astype(np.float32) * np.float32(self.pixels.scale)
            mean, std = (np.asarray(n, np.float32) for n in (self.pixels.mean, self.pixels.std))
            numbers = ((scaled - mean) / std).astype(self.form.dtype)
        if not self.form.has_channels_last:
            numbers = np.moveaxis(numbers, -1, 0)
        return np.ascontiguousarray(numbers)


def image_files(folder: Path, where: str) -> list[Path]:
    """The images of a folder and of those within it, in the order of their paths."""
    if not folder.is_dir():
        raise CalibrationError(f"{where}: there is no such folder. Check the path.")
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise CalibrationError(
            f"{where}: no images; wanted files that end with {', '.join(sorted(SUFFIXES))}."
        )
    return found


def _form_of(spec: InputSpec, size: tuple[int, int] | None, where: str) -> ImageForm:
    """The form of the input; sizes that the model leaves open are those that are given."""
    shape = spec.shape
    if shape is None or len(shape) != IMAGE_RANK or not (shape[1] in MODES or shape[3] in MODES):
        raise CalibrationError(
            f"{where}: the model wants {spec}; wanted an image, (N, C, H, W) or (N, H, W, C) with "
            "1 or 3 channels. Give .npz files."
        )
    last = shape[1] not in MODES
    channels = shape[3] if last else shape[1]
    wanted = shape[1:3] if last else shape[2:]
    found = size or wanted
    for model, given in zip(wanted, found, strict=True):
        if not isinstance(given, int):
            raise CalibrationError(
                f"{where}: the model wants {spec}, whose size is open. Give a size: "
                "size=(224, 224), --image-size 224,224."
            )
        if isinstance(model, int) and model != given:
            raise CalibrationError(
                f"{where}: the model wants {spec}; got the size {found}. Leave it out."
            )
    if spec.dtype != np.uint8 and spec.dtype.kind != "f":
        raise CalibrationError(f"{where}: the model wants {spec}; images are floats or uint8.")
    height, width = (int(n) for n in found if isinstance(n, int))
    assert isinstance(channels, int)  # 1 or 3
    return ImageForm(height, width, channels, last, spec.dtype)


def _read(file: Path, form: ImageForm) -> Array:
    """Pixels of a file, shape (H, W, C), uint8."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file, formats=_FORMATS) as opened:
            turned = ImageOps.exif_transpose(opened).convert(MODES[form.channels])
            pixels = np.asarray(_covering(turned, form))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CalibrationError(
            f"image '{file}' cannot be read: {first_line(error)}. Replace it, or take it out."
        ) from error
    return pixels.reshape(form.height, form.width, form.channels)


def _covering(image: Image.Image, form: ImageForm) -> Image.Image:
    """The image, scaled so that it covers the size, and cut to it around its centre."""
    from PIL import Image, ImageOps

    size = (form.width, form.height)
    return ImageOps.fit(image, size, Image.Resampling.BILINEAR, centering=(0.5, 0.5))
