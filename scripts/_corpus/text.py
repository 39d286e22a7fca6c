"""Text that Pillow draws: its direction, where it stands, and what it says."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from scripts._corpus.boxes import boxes, overlap
from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import DDDDOCR, RAPIDOCR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.core.arrays import Singles
    from scripts._corpus.boxes import Box

FOLDER = "rapidocr_onnxruntime/models"
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789"
CALIBRATED, SCORED = 12, 48
"""Pictures that are calibrated on, and others that are scored."""
PAGES, WORDS = 24, 4
"""Pages that are scored, and words on each of them."""
BLANK = 0
"""Character of a step that says none."""
SAME_WORD = 0.5
"""Overlap from which a found box is the drawn word's, as in ICDAR's contests."""


def word(random: np.random.Generator, letters: int) -> str:
    """Random letters and digits that look like no other ones."""
    return "".join(random.choice(list(LETTERS), letters))


def drawn(text: str, height: int, random: np.random.Generator) -> Image.Image:
    """Dark text on light ground, a little noisy, in grey."""
    return line_of(text, height, random)[0]


def line_of(text: str, height: int, random: np.random.Generator) -> tuple[Image.Image, Box]:
    """(the line, where its text stands: from the font's highest to its lowest letters)."""
    font = ImageFont.load_default(height * 0.62)
    width = int(font.getlength(text)) + height // 2
    image = Image.new("L", (width, height), int(random.integers(215, 256)))
    x, y = height // 4, int(height * random.uniform(0.08, 0.2))
    ImageDraw.Draw(image).text((x, y), text, fill=int(random.integers(0, 70)), font=font)
    noisy = np.asarray(image, np.float32) + random.normal(0, 6, (height, width))
    _, top, _, bottom = font.getbbox(LETTERS)
    box = (x, y + top, x + font.getlength(text), y + bottom)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), box


def pixels(image: Image.Image) -> Singles:
    """(1, 3, height, width) in [-1, 1], as PaddleOCR wants them."""
    grey = np.asarray(image, np.float32) / 255
    return np.repeat(((grey - 0.5) / 0.5)[None, None], 3, axis=1).astype(np.float32)


def line_pixels(image: Image.Image, width: int) -> Singles:
    """(1, 3, 48, width): the line in its own proportions, narrower ones with zeros behind them.

    PaddleOCR's models of lines were trained on that; letters that are drawn out are read worse.
    """
    own = min(width, round(image.width * 48 / image.height))
    padded = np.zeros((1, 3, 48, width), np.float32)
    padded[..., :own] = pixels(image.resize((own, 48)))
    return padded


def decoded(scores: Singles, characters: Sequence[str]) -> str:
    """Text of connectionist scores (steps, characters): repeats once, blanks not at all."""
    best = scores.argmax(-1)
    kept = [
        i for i, before in zip(best, [BLANK, *best[:-1]], strict=True) if i not in (BLANK, before)
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
        image = drawn(word(random, 8), 48, random)
        pictures.append((i % 2, {"x": line_pixels(image.rotate(180 * (i % 2)), 192)}))

    def score(predict: Predict) -> float:
        return float(
            np.mean(
                [predict(batch)[0].argmax() == turned for turned, batch in pictures[CALIBRATED:]]
            )
        )

    path = RAPIDOCR.extract(f"{FOLDER}/ch_ppocr_mobile_v2.0_cls_infer.onnx")
    samples = [batch for _, batch in pictures[:CALIBRATED]]
    return Task("rapidocr, text direction", path, samples, score, "directions", SCORED)


def recognition() -> Task:
    """Lines of letters and digits, read back; space around a line is not text."""
    path = RAPIDOCR.extract(f"{FOLDER}/ch_PP-OCRv4_rec_infer.onnx")
    metadata = {p.key: p.value for p in onnx.load(path).metadata_props}
    characters = ["", *metadata["character"].splitlines(), " "]
    random = np.random.default_rng(2)
    words = [word(random, 10) for _ in range(CALIBRATED + SCORED)]
    lines: list[tuple[str, Batch]] = [
        (text, {"x": line_pixels(drawn(text, 48, random), 320)}) for text in words
    ]

    def score(predict: Predict) -> float:
        read = [
            right(text, decoded(np.asarray(predict(batch)[0][0], np.float32), characters).strip())
            for text, batch in lines[CALIBRATED:]
        ]
        return float(np.mean(read))

    samples = [batch for _, batch in lines[:CALIBRATED]]
    return Task("rapidocr, recognition", path, samples, score, "characters", 10 * SCORED)


def detection() -> Task:
    """Where words stand on pages of 320 by 320: F-measure of the boxes found."""
    random = np.random.default_rng(3)
    pages = []
    for _ in range(CALIBRATED + PAGES):
        page, words = Image.new("L", (320, 320), 245), []
        for row in range(WORDS):
            line, box = line_of(word(random, int(random.integers(5, 9))), 40, random)
            x, y = int(random.integers(5, 60)), 20 + row * 75
            page.paste(line, (x, y))
            left, top, end, bottom = box
            words.append((x + left, y + top, x + end, y + bottom))
        pages.append((words, {"x": pixels(page)}))

    def score(predict: Predict) -> float:
        found_of = [(words, boxes(predict(batch)[0][0, 0])) for words, batch in pages[CALIBRATED:]]
        hits = sum(
            any(overlap(word, box) >= SAME_WORD for box in found)
            for words, found in found_of
            for word in words
        )
        return 2 * hits / (PAGES * WORDS + sum(len(found) for _, found in found_of))

    path = RAPIDOCR.extract(f"{FOLDER}/ch_PP-OCRv4_det_infer.onnx")
    samples = [batch for _, batch in pages[:CALIBRATED]]
    return Task("rapidocr, detection", path, samples, score, "words", PAGES * WORDS)


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
    return Task("ddddocr, captchas", path, samples, score, "characters", 4 * SCORED)
