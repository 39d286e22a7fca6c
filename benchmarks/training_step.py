"""How long a training step takes with fake quantization, over the same step in float.

    python -m benchmarks training_step

A step is forward, backward and an optimizer's step (SGD with momentum), of ResNet-20 and of the
vision transformer in models/, on random images, in one thread. Float, onnxq and torch.ao's FX mode
(get_default_qat_qconfig_mapping("x86")) take turns, step by step; the table has the median of the
ratios to the float step of the same turn. `frozen`: observers off, batch norm frozen. The table
that this printed is in benchmarks/results/training_step.md. Exit code 1: a bound is missed.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import torch
from torch import nn
from torch.nn import functional

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_names
from benchmarks.harness.table import Missed, Row, Table
from models.resnet import resnet20
from models.transformer import Attention, transformer
from onnxq.pytorch import FakeQuantize, disable_observer, prepare_qat
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

TOOLS = ("onnxq", "torch.ao FX")
STEPS = Table(
    "steps",
    {
        **{"model": "", "images": "", "float step, ms": ".0f"},
        **{f"{state}, {tool}": ".2f" for state in ("observing", "frozen") for tool in TOOLS},
        **{f"quantizers, {tool}": "" for tool in TOOLS},
    },
    keys=2,
)
BATCHES = (8, 32)
FROZEN_BOUND = {"ResNet-20": 1.4, "ViT": 2.0}


class FixedAttention(Attention):
    """Attention whose factor is a number: torch.ao's FX takes that of a shape for a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, tokens, width) -> the same shape."""
        size = self.out.in_features // self.heads
        shape = (x.shape[0], x.shape[1], self.heads, size)
        q, k, v = (f(x).reshape(shape).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(2, 3) * size**-0.5, dim=-1)
        y: Tensor = self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return y


def vit() -> nn.Module:
    """The vision transformer in models/, with FixedAttention."""
    model = transformer()
    for part in model.modules():
        if type(part) is Attention:
            part.__class__ = FixedAttention
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {"ResNet-20": resnet20, "ViT": vit}


@dataclass(frozen=True)
class Trained:
    """A model in training.

    Attributes:
        module: what is called.
        quantizers: modules in it that round.
    """

    module: nn.Module
    quantizers: int

    def stepper(self, images: Tensor, labels: Tensor) -> Callable[[], float]:
        """A function that trains one step and says its CPU seconds, of this thread."""
        optimizer = torch.optim.SGD(self.module.parameters(), 0.001, momentum=0.9)

        def step() -> float:
            start = time.thread_time()
            loss = functional.cross_entropy(self.module(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            optimizer.step()
            return time.thread_time() - start

        return step


def ours(model: nn.Module, images: Tensor) -> Trained:
    """The model prepared by onnxq."""
    made = prepare_qat(copy.deepcopy(model), inputs=images[:4]).train()
    return Trained(made, sum(isinstance(part, FakeQuantize) for part in made.modules()))


def theirs(model: nn.Module, images: Tensor) -> Trained:
    """The model prepared by torch.ao's FX mode."""
    from torch.ao.quantization import FakeQuantizeBase, get_default_qat_qconfig_mapping
    from torch.ao.quantization.quantize_fx import prepare_qat_fx

    mapping = get_default_qat_qconfig_mapping("x86")
    made: Any = prepare_qat_fx(copy.deepcopy(model).train(), mapping, (images[:4],))
    return Trained(made, sum(isinstance(part, FakeQuantizeBase) for part in made.modules()))


def freeze_ours(module: nn.Module) -> None:
    """Observers off, running statistics of batch norm in use."""
    module.apply(disable_observer).apply(freeze_bn_stats)


def freeze_theirs(module: nn.Module) -> None:
    """The same by torch.ao's names."""
    from torch.ao.nn.intrinsic import qat
    from torch.ao.quantization import disable_observer as rest

    module.apply(rest).apply(qat.freeze_bn_stats)


def ratios(steppers: dict[str, Callable[[], float]], steps: int) -> dict[str, float]:
    """Median over the turns of each one's seconds over those of "float"."""
    times: dict[str, list[float]] = {name: [] for name in steppers}
    for turn in range(steps + 3):
        for name in steppers if turn % 2 else reversed(steppers):
            times[name].append(steppers[name]())
    against = times["float"][3:]
    return {
        name: statistics.median(a / b for a, b in zip(found[3:], against, strict=True))
        for name, found in times.items()
    } | {"float": statistics.median(against)}


@benchmark(STEPS, needs=("torch",))
@click.option("--steps", default=30, show_default=True)
@with_names(MODELS)
def measure(steps: int, names: Sequence[str]) -> Iterator[Row | Missed]:
    """Ratios by model and batch, and the bounds that are missed."""
    torch.manual_seed(0)
    for name, batch in itertools.product(names or MODELS, BATCHES):
        images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
        model = MODELS[name]()
        both = {"onnxq": ours(model, images), "FX": theirs(model, images)}
        every = {"float": Trained(copy.deepcopy(model).train(), 0), **both}
        steppers = {who: one.stepper(images, labels) for who, one in every.items()}
        observing = ratios(steppers, steps)
        freeze_ours(both["onnxq"].module)
        freeze_theirs(both["FX"].module)
        frozen = ratios(steppers, steps)
        found = (each[who] for each in (observing, frozen) for who in both)
        quantizers = (one.quantizers for one in both.values())
        yield STEPS.row(name, batch, 1000 * observing["float"], *found, *quantizers)
        if observing["onnxq"] > observing["FX"]:
            yield Missed(f"{name}: observing takes {observing['onnxq']:.2f}, FX less")
        if frozen["onnxq"] > FROZEN_BOUND[name]:
            yield Missed(f"{name}: frozen takes {frozen['onnxq']:.2f} times float's")
