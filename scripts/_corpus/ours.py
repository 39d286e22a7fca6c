"""Models of this repository: a classifier of images, and a language model of bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import numpy as np

import onnxq
from models.cifar10 import load_sample
from onnxq.metrics import bytes_of, windows
from scripts._corpus.task import Batch, Predict, Task

if TYPE_CHECKING:
    from onnxq.core.arrays import Array

FACTORIES = {"mobilenetv2": "models.mobilenet:mobilenetv2", "decoder": "models.decoder:decoder"}
MODELS = Path(__file__).resolve().parents[2] / "models"
CALIBRATED, SCORED, AT_ONCE = 64, 1000, 50
"""Images that are calibrated on, others that are scored, and of these in a batch."""
WINDOW, WINDOWS = 128, 24
"""Bytes of text that are read at once, and how often."""


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="onnxq-corpus-"))


def exported(name: str, inputs: dict[str, Array]) -> Path:
    """The trained model of that name as ONNX file, exported once in a process.

    Args:
        name: module of models/, function in it, and weights beside it.
        inputs: {name: example}, one.
    """
    import torch  # seconds, for two of the tasks

    from onnxq.pytorch import load_module

    path = _folder() / f"{name}.onnx"
    if not path.is_file():
        module = load_module(FACTORIES[name], MODELS / f"{name}.safetensors")
        examples = tuple(torch.from_numpy(each) for each in inputs.values())
        onnxq.export(module, examples, path, input_names=list(inputs))
    return path


def classifier() -> Task:
    """MobileNetV2 on small photographs of ten kinds of things."""
    seen, _ = load_sample("calibration")
    images, labels = load_sample("test")
    images, labels = images[:SCORED], labels[:SCORED]

    def score(predict: Predict) -> float:
        hits = [
            predict({"x": images[i : i + AT_ONCE]})[0].argmax(-1) == labels[i : i + AT_ONCE]
            for i in range(0, len(images), AT_ONCE)
        ]
        return float(np.concatenate(hits).mean())

    samples: list[Batch] = [{"x": image[None]} for image in seen[:CALIBRATED]]
    path = exported("mobilenetv2", {"x": seen[:4]})
    return Task("mobilenetv2", path, samples, score, "images", len(images))


def language_model() -> Task:
    """Decoder of 3.2 million weights on a novel that it never saw: the next byte."""
    seen = windows(bytes_of(MODELS / "persuasion.txt"), WINDOW)[:CALIBRATED]
    text = windows(bytes_of(MODELS / "northanger_abbey.txt"), WINDOW)[:WINDOWS]

    def score(predict: Predict) -> float:
        guessed = [predict({"tokens": row[None]})[0][0, :-1].argmax(-1) == row[1:] for row in text]
        return float(np.concatenate(guessed).mean())

    samples: list[Batch] = [{"tokens": row[None]} for row in seen]
    path = exported("decoder", {"tokens": seen[:2]})
    return Task("decoder", path, samples, score, "bytes guessed", text[:, 1:].size)
