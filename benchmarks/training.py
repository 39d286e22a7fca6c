r"""Training that pays: CIFAR-10 models in float, quantized after training, trained, and deployed.

    python -m benchmarks training resnet20 mobilenetv2 transformer --data cifar10_jpeg.npz
    python -m benchmarks training resnet20 --bits 4 --steps 120 --batch 32   # embedded images

Each model starts from its float weights in models/. Trained is `finetune` with learned scales
(`learned_qat_qconfig`, `learned_4bit_qat_qconfig`) and the float model as the teacher, on random
crops and flips of the training images; no setting differs between the models. It begins with the
float weights, or with those that the PTQ algorithms bias and round give, and all scales at rest.
Without --data it trains on the embedded calibration images and counts the 1,000 embedded test
images; labels are needed for neither. Quantized after training is `onnxq.quantize`, as it is and
with the algorithms bias and round, with weights of as many bits; 2 bits are -1, 0 and 1. The best
start is that of `best_start`, and `finetune` ends in the best state on the same 64 calibration
images, some of which it may be trained on. All of them
are counted on ONNX Runtime. Agreeing are images for which the trained module, in torch, and the
deployed file have the same largest logit. torch.ao FX is PyTorch's own quantize_fx with the same
ranges of integers, batches, loss and phases, from the float weights, and counted as its convert_fx
runs in torch.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import click
import numpy as np
import torch

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_data, with_names
from benchmarks.harness.table import Row, Table
from benchmarks.parts import fx_training
from models.cifar10 import load_sample
from onnxq.observers import NarrowRangeObserver, StepSizeObserver
from onnxq.ort import runtime
from onnxq.pytorch import convert, export, load_module, prepare_qat
from onnxq.pytorch.eager.best_start import best_start
from onnxq.pytorch.train.recipe import Recipe, distilling, finetune
from onnxq.qconfig import (
    FakeQuantSpec,
    QConfig,
    QConfigMapping,
    ScaleRule,
    get_default_qconfig,
    learned_4bit_qat_qconfig,
    learned_qat_qconfig,
)
from scripts._models import ROOT
from scripts.train import MODELS, Images, augment, load_images

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import onnx_ir as ir
    from torch import Tensor, nn


TERNARY = FakeQuantSpec(StepSizeObserver.with_args(quant_max=1), ScaleRule.LEARNED)
BITS = {
    **{8: learned_qat_qconfig, 4: learned_4bit_qat_qconfig},
    2: QConfig(learned_4bit_qat_qconfig.activation, TERNARY),
}
LARGEST = {8: 127, 4: 7, 2: 1}
TARGET = "x86-vnni"
BATCH = 64
TEST_BATCH = 500
TRAINED_WAYS = Table(
    "ways",
    {
        **{"model": "", "bits": "", "way": "", "top-1": ".2%", "agreeing": ".2%"},
        **{"CPU s per step": ".2f"},
    },
    keys=3,
)
SHORT_WAYS = Table(
    "short",
    {
        **{"model": "", "bits": "", "way": "", "top-1": ".2%", "of each seed": ""},
        **{"agreeing": ".2%", "CPU s per step": ".2f"},
    },
    keys=3,
)
"""Courses of fewer than LONG steps; means of seeds."""
LONG = 400
IMPROVED = ("bias", "round")
FLOAT = "float"
TRAINED = "trained, deployed"
ON = "bias and round, then trained, deployed"
BETTER = "after training, bias and round"
BEST = "best start, then trained, deployed"
FX = "torch.ao FX, trained, converted"
WAYS = ("after training", TRAINED, BETTER, ON, BEST, FX)
TRAINS = (TRAINED, ON, BEST, FX)
APART = 64  # embedded calibration images by which the best state is chosen
NONE = ""


def batches(data: Images, steps: int, size: int, seed: int) -> Iterator[Tensor]:
    """So many batches of training images, cropped and flipped."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(data.train), (size,), generator=generator)
        yield augment(data.train[chosen], generator)


def tops(model: ir.Model, data: Images) -> Tensor:
    """Class of the largest logit of each test image, on ONNX Runtime."""
    with runtime.open_session(model, threads=1) as session:
        split = torch.split(data.test, TEST_BATCH)
        return torch.from_numpy(
            np.concatenate([session.run({"image": x.numpy()})[0].argmax(1) for x in split])
        )


def share(classes: Tensor, data: Images) -> float:
    """Share of images of that class."""
    return float((classes == data.test_labels).float().mean())


def untrained(model: ir.Model, bits: int, improve: tuple[str, ...]) -> ir.Model:
    """The float model, quantized on the embedded calibration images."""
    weight = NarrowRangeObserver.with_args(quant_max=LARGEST[bits])
    qconfig = QConfigMapping(QConfig(get_default_qconfig().activation, weight))
    samples = {"image": load_sample("calibration")[0]}
    return onnxq.quantize(
        model,
        onnxq.Samples(samples, batch_size=64),
        qconfig=qconfig.set_improve(improve),
        target=TARGET,
        check=onnxq.Check.NONE,  # no repair: it would put other bits in place of those asked for
    )


def embedded() -> Images:
    """Calibration images to train on, of which labels are not read, and the 1,000 test images."""
    (train, _), (test, labels) = load_sample("calibration"), load_sample("test")
    nothing = torch.zeros(len(train), dtype=torch.int64)
    found = torch.from_numpy(labels).long()
    return Images(torch.from_numpy(train), nothing, torch.from_numpy(test), found)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with its float weights, and what it is trained with."""

    name: str
    data: Images
    recipe: Recipe
    batch: int
    seed: int = 0

    def module(self) -> nn.Module:
        """The float module."""
        path = ROOT / "models" / f"{self.name}.safetensors"
        return load_module(f"{MODELS[self.name][0]}:{self.name}", path)

    def exported(self) -> ir.Model:
        """The float module as an ONNX model."""
        return export(self.module(), torch.from_numpy(load_sample("calibration")[0][:4]))

    def resting(self) -> Self:
        """The same with all scales at rest from the first step on."""
        return replace(self, recipe=replace(self.recipe, freeze_activations=0, freeze=0))

    def measured(self, bits: int, way: str) -> tuple[float | str, ...]:
        """Top-1 as deployed, agreeing images, time per step."""
        if way == FX:
            return trained_by_fx(self, bits)
        if way in TRAINS:
            return trained(self if way == TRAINED else self.resting(), bits, way)
        model = self.exported()
        if way != FLOAT:
            model = untrained(model, bits, IMPROVED if way == BETTER else ())
        return share(tops(model, self.data), self.data), NONE, NONE


def trained(subject: Subject, bits: int, way: str) -> tuple[float, float, float]:
    """Top-1 as deployed, agreeing images, time per step."""
    module, data, recipe = subject.module(), subject.data, subject.recipe
    images = torch.from_numpy(load_sample("calibration")[0])
    qconfig = QConfigMapping(BITS[bits])
    apart: list[Tensor] | None = None
    if way == BEST:
        images, apart = images[:-APART], [images[-APART:]]
        prepared = best_start(module, images, apart, qconfig, TARGET)
    else:
        qconfig = replace(qconfig, improve=IMPROVED if way == ON else ())
        prepared = prepare_qat(module, inputs=images, qconfig=qconfig, target=TARGET)
    torch.manual_seed(subject.seed)  # of each row: it may be measured first, or last
    given = batches(data, recipe.steps, subject.batch, subject.seed)
    started = time.thread_time()
    finetune(prepared, given, distilling(module), recipe, held_apart=apart)
    seconds = (time.thread_time() - started) / recipe.steps
    deployed = tops(export(convert(prepared), images[:4]), data)
    agreeing = float((deployed == in_torch(prepared, data)).float().mean())
    return share(deployed, data), agreeing, seconds


def trained_by_fx(subject: Subject, bits: int) -> tuple[float, float, float]:
    """Top-1 of PyTorch's own converted module, images agreeing with it, time per step."""
    module, data, recipe = subject.module(), subject.data, subject.recipe
    torch.manual_seed(subject.seed)
    given = batches(data, recipe.steps, subject.batch, subject.seed)
    prepared, seconds = fx_training.trained(
        module, LARGEST[bits], given, distilling(module), recipe
    )
    converted = fx_training.converted(prepared)
    deployed = in_torch(converted, data)
    agreeing = float((deployed == in_torch(prepared, data)).float().mean())
    return share(deployed, data), agreeing, seconds


def in_torch(module: nn.Module, data: Images) -> Tensor:
    """Class of the largest logit of each test image, as the trained module computes it."""
    with torch.inference_mode():
        return torch.cat([module(x).argmax(1) for x in torch.split(data.test, TEST_BATCH)])


def mean(cells: Sequence[float | str]) -> float | str:
    """Mean of numbers; nothing, of cells that are empty."""
    numbers = [cell for cell in cells if not isinstance(cell, str)]
    return sum(numbers) / len(numbers) if numbers else NONE


@benchmark(TRAINED_WAYS, SHORT_WAYS, needs=("torch",))
@click.option("--bits", type=int, multiple=True, default=tuple(BITS), show_default=True)
@click.option("--way", "ways", type=click.Choice(WAYS), multiple=True, default=WAYS)
@click.option("--steps", default=Recipe().steps, show_default=True)
@click.option("--batch", default=BATCH, show_default=True)
@click.option("--lr", default=Recipe().learning_rate, show_default=True)
@click.option("--seeds", default=1, show_default=True, help="Of fewer than 400 steps.")
@with_data
@with_names(sorted(MODELS))
def measure(
    bits: Sequence[int],
    ways: Sequence[str],
    steps: int,
    batch: int,
    lr: float,
    seeds: int,
    data: Path | None,
    names: Sequence[str],
) -> Iterator[Row]:
    """Every way of each model."""
    if seeds > 1 and steps >= LONG:
        raise click.UsageError(f"--seeds is of fewer than {LONG} steps; {steps} are asked for.")
    images = load_images(data) if data else embedded()
    for name in names or sorted(MODELS):
        subject = Subject(name, images, Recipe(steps, lr), batch)
        for count, way in [(32, FLOAT), *itertools.product(bits, ways)]:
            if steps >= LONG:
                yield TRAINED_WAYS.row(name, count, way, *subject.measured(count, way))
                continue
            drawn = range(seeds if way in TRAINS else 1)
            found = [replace(subject, seed=seed).measured(count, way) for seed in drawn]
            each = ", ".join(f"{top:.2%}" for top, *_ in found) if len(drawn) > 1 else NONE
            top, *others = map(mean, zip(*found, strict=True))
            yield SHORT_WAYS.row(name, count, way, top, each, *others)
