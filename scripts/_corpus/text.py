"""Text that Pillow draws: its direction, where it stands, and what it says."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import DDDDOCR, RAPIDOCR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.core.arrays import Singles

FOLDER = "rapidocr_onnxruntime/models"
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789"
CALIBRATED, SCORED = 12, 24
"""Pictures that are calibrated on, and others that are scored."""
TEXT_AT = 0.3
"""Probability from which PP-OCR takes a pixel for text."""


def word(random: np.random.Generator, letters: int) -> str:
    """Random letters and digits that look like no other ones."""
    return "".join(random.choice(list(LETTERS), letters))


def drawn(text: str, height: int, random: np.random.Generator) -> Image.Image:
    """Dark text on light ground, a little noisy, in grey."""
    font = ImageFont.load_default(height * 0.62)
    width = int(font.getlength(text)) + height // 2
    image = Image.new("L", (width, height), int(random.integers(215, 256)))
    place = (height // 4, int(height * random.uniform(0.08, 0.2)))
    ImageDraw.Draw(image).text(place, text, fill=int(random.integers(0, 70)), font=font)
    noisy = np.asarray(image, np.float32) + random.normal(0, 6, (height, width))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def pixels(image: Image.Image) -> Singles:
    """(1, 3, height, width) in [-1, 1], as PaddleOCR wants them."""
    grey = np.asarray(image, np.float32) / 255
    return np.repeat(((grey - 0.5) / 0.5)[None, None], 3, axis=1).astype(np.float32)


def decoded(scores: Singles, characters: Sequence[str], blank: int = 0) -> str:
    """Text of connectionist scores (steps, characters): repeats once, blanks not at all."""
    best = scores.argmax(-1)
    kept = [
        i for i, before in zip(best, [blank, *best[:-1]], strict=True) if i not in (blank, before)
    ]
    return "".join(characters[i] for i in kept)


def right(wanted: str, got: str) -> float:
    """1 - edit distance / length, at least 0."""
    row = list(range(len(got) + 1))
    for i, a in enumerate(wanted, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(got, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return max(0.0, 1 - row[-1] / len(wanted))


def direction() -> Task:
    """Upright or upside down, at 48 by 192."""
    random = np.random.default_rng(1)
    pictures = []
    for i in range(CALIBRATED + SCORED):
        image = drawn(word(random, 8), 48, random).resize((192, 48))
        pictures.append((i % 2, {"x": pixels(image.rotate(180 * (i % 2)))}))

    def score(predict: Predict) -> float:
        return float(
            np.mean(
                [predict(batch)[0].argmax() == turned for turned, batch in pictures[CALIBRATED:]]
            )
        )

    path = RAPIDOCR.extract(f"{FOLDER}/ch_ppocr_mobile_v2.0_cls_infer.onnx")
    samples = [batch for _, batch in pictures[:CALIBRATED]]
    return Task("rapidocr, text direction", path, samples, score, "directions")


def recognition() -> Task:
    """Lines of letters and digits, read back."""
    path = RAPIDOCR.extract(f"{FOLDER}/ch_PP-OCRv4_rec_infer.onnx")
    metadata = {p.key: p.value for p in onnx.load(path).metadata_props}
    characters = ["", *metadata["character"].splitlines(), " "]
    random = np.random.default_rng(2)
    words = [word(random, 10) for _ in range(CALIBRATED + SCORED)]
    lines: list[tuple[str, Batch]] = [
        (text, {"x": pixels(drawn(text, 48, random).resize((320, 48)))}) for text in words
    ]

    def score(predict: Predict) -> float:
        read = [
            right(text, decoded(np.asarray(predict(batch)[0][0], np.float32), characters))
            for text, batch in lines[CALIBRATED:]
        ]
        return float(np.mean(read))

    samples = [batch for _, batch in lines[:CALIBRATED]]
    return Task("rapidocr, recognition", path, samples, score, "characters")


def detection() -> Task:
    """Where words stand on a page of 320 by 320: overlap of pixels with the drawn boxes."""
    random = np.random.default_rng(3)
    pages = []
    for _ in range(6 + 8):
        page, boxes = Image.new("L", (320, 320), 245), np.zeros((320, 320), bool)
        for row in range(4):
            line = drawn(word(random, int(random.integers(5, 9))), 40, random)
            x, y = int(random.integers(5, 60)), 20 + row * 75
            page.paste(line, (x, y))
            boxes[y + 8 : y + 34, x + 10 : min(x + line.width - 10, 320)] = True
        pages.append((boxes, {"x": pixels(page)}))

    def score(predict: Predict) -> float:
        overlaps = []
        for boxes, batch in pages[6:]:
            found = predict(batch)[0][0, 0] > TEXT_AT
            overlaps.append((found & boxes).sum() / (found | boxes).sum())
        return float(np.mean(overlaps))

    path = RAPIDOCR.extract(f"{FOLDER}/ch_PP-OCRv4_det_infer.onnx")
    return Task("rapidocr, detection", path, [b for _, b in pages[:6]], score, "overlap of boxes")


def captcha() -> Task:
    """Four letters, read back; capitals and small letters count as one, as in captchas."""
    source = ast.parse(DDDDOCR.read("ddddocr/charsets.py").decode())
    characters = next(
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHARSET_BETA"
    )
    random = np.random.default_rng(4)
    words = [word(random, 4) for _ in range(CALIBRATED + SCORED)]
    captchas = []
    for text in words:
        grey = np.asarray(drawn(text, 64, random).resize((160, 64)), np.float32) / 255
        captchas.append((text, {"input1": ((grey - 0.5) / 0.5)[None, None].astype(np.float32)}))

    def score(predict: Predict) -> float:
        read = []
        for text, batch in captchas[CALIBRATED:]:
            scores = np.asarray(predict(batch)[0], np.float32)
            got = decoded(scores.reshape(-1, scores.shape[-1]), characters)
            read.append(right(text.lower(), got.lower()))
        return float(np.mean(read))

    path = DDDDOCR.extract("ddddocr/common.onnx")
    samples = [batch for _, batch in captchas[:CALIBRATED]]
    return Task("ddddocr, captchas", path, samples, score, "characters")
