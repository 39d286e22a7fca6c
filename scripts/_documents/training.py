"""Quantization-aware training and fusion beside torch's, with the documented QConfigs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

from scripts._documents.check import COVERAGE, DESIGN, GUIDE, Check
from scripts._documents.compare import (
    ULP,
    close,
    holds,
    same,
    same_array,
    steps_apart,
)
from scripts._documents.namespaces import ours, theirs
from scripts._documents.nets import images, off_the_tie, training

TRAINING = "QAT"


def first_step(what: str, backend: str) -> None:
    """The first step of training: results bit for bit, and then the gradients."""
    nets = []
    for namespace in (ours, theirs):
        if backend:
            make = namespace.get_default_qat_qconfig
            documented = {} if namespace is ours else {"version": 0}  # 1: newer than the documents
            net = training(namespace, make(backend, **documented))
        else:
            net = training(namespace)
        y = net(images(8))
        y.square().mean().backward()
        nets.append((net, y))
    if what == "result":
        same_array(nets[0][1], nets[1][1])
        return
    for name in ("conv", "side", "fc"):
        own, other = (getattr(net, name).weight for net, _ in nets)
        rows = other.reshape(len(other), -1).abs()
        inner = (rows < rows.amax(1, keepdim=True)).reshape(other.shape)
        chosen = inner if what == "gradient inside" else ~inner
        # the sums of a gradient run over 8 * 36 places at most, in any order
        bound = 8 * 36 * ULP * float(other.grad.abs().max())
        close(own.grad[chosen], other.grad[chosen], 0.0, bound)


# --- Modules of nn.qat and nn.intrinsic.qat by themselves.

MODULES: dict[str, tuple[str, Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "Linear": ("qat", lambda n, q: n.Linear(6, 4, bias=False, qconfig=q), (5, 6)),
    "Conv2d": ("qat", lambda n, q: n.Conv2d(3, 4, 3, bias=False, qconfig=q), (2, 3, 6, 6)),
    "LinearReLU": (
        *("intrinsic.qat", lambda n, q: n.LinearReLU(6, 4, bias=False, qconfig=q)),
        (5, 6),
    ),
    "ConvReLU2d": (
        *("intrinsic.qat", lambda n, q: n.ConvReLU2d(3, 4, 3, bias=False, qconfig=q)),
        (2, 3, 6, 6),
    ),
    "ConvBn2d": ("intrinsic.qat", lambda n, q: n.ConvBn2d(3, 4, 3, qconfig=q), (2, 3, 6, 6)),
    "ConvBnReLU2d": (
        *("intrinsic.qat", lambda n, q: n.ConvBnReLU2d(3, 4, 3, qconfig=q)),
        (2, 3, 6, 6),
    ),
}


def module(name: str, what: str) -> None:
    """The module alone, in train mode: its result or the gradient of its input, bit for bit."""
    place, make, shape = MODULES[name]
    found = []
    for root, namespace in (("onnxq.pytorch.nn", ours), ("torch.ao.nn", theirs)):
        made = make(import_module(f"{root}.{place}"), namespace.default_qat_qconfig).train()
        torch.manual_seed(6)
        with torch.no_grad():  # constructors draw numbers of their own
            for parameter in made.parameters():
                parameter.copy_(torch.rand(parameter.shape) - 0.3)
        off_the_tie(made, "per tensor")
        x = torch.randn(*shape).requires_grad_()
        y = made(x)
        y.square().sum().backward()
        found.append(y if what == "result" else x.grad)
    same_array(found[0], found[1])


def trained_types() -> None:
    """prepare_qat puts nn.qat and nn.intrinsic.qat modules in place, as torch's does."""
    mine, torchs = training(ours), training(theirs)
    for name in ("conv", "side", "fc"):
        same(type(getattr(mine, name)).__name__, type(getattr(torchs, name)).__name__, name)
        holds(hasattr(getattr(mine, name), "weight_fake_quant"), f"{name}: no weight_fake_quant")


def learns() -> None:
    """The prepared model trains: three steps lower the loss, and convert gives what was trained."""
    net = training(ours)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(images(8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    holds(losses[2] < losses[0], f"losses {losses}")
    net.eval().apply(ours.disable_observer)
    made = ours.convert(net)
    steps_apart(made(images(8)), net(images(8)), float(made.fc.scale))


# --- Fusion.

FUSIONS = [
    *(
        (f"{first}{n}d", *(part if part == "ReLU" else f"{part}{n}d" for part in rest))
        for n in (1, 2, 3)
        for first, *rest in (
            ("Conv", "ReLU"),
            ("Conv", "BatchNorm"),
            ("Conv", "BatchNorm", "ReLU"),
        )
    ),
    ("Linear", "ReLU"),
]
"""The documented lists of layers, by the names of torch.nn's classes."""


def part_of(name: str) -> nn.Module:
    """A layer from 3 to 4 channels, or of 4 channels."""
    sizes = {"Conv": (3, 4, 1), "Batc": (4,), "Line": (3, 4)}.get(name[:4], ())
    made: nn.Module = getattr(nn, name)(*sizes)
    return made


def fused(names: tuple[str, ...], mode: str) -> None:
    """fuse_modules makes torch's type of the first part, identities of the others; same results."""
    made = []
    n = int(names[0][4]) if names[0].startswith("Conv") else 0
    x = torch.randn(2, 3, *[4] * n)
    verb = "fuse_modules" if mode == "eval" else "fuse_modules_qat"
    for namespace in (ours, theirs):
        torch.manual_seed(5)
        net = nn.Sequential(*map(part_of, names)).train(mode == "train")
        places = [str(i) for i in range(len(net))]
        made.append(getattr(namespace, verb)(net, [places]))
    for own, other in zip(*made, strict=True):
        same(type(own).__name__, type(other).__name__)
    close(made[0](x), made[1](x), 0.0, 8 * ULP * float(made[1](x).abs().max()))


def checks() -> Iterator[Check]:
    """All checks of training and of fusion."""
    for backend in ("", "fbgemm", "qnnpack"):
        words = f", {backend}" if backend else ""
        for what in ("result", "gradient inside"):
            ask = partial(first_step, what, backend)
            yield Check(GUIDE, TRAINING, f"first step{words}, {what}", ask)
    for name in MODULES:
        topic = f"nn.{MODULES[name][0]} modules"
        for what in ("result", "gradient"):
            yield Check(COVERAGE, topic, f"{name}, {what}", partial(module, name, what))
    at_edge = partial(first_step, "gradient at the edge", "")
    yield Check(GUIDE, TRAINING, "first step, gradient of each channel's largest weight", at_edge)
    yield Check(DESIGN, TRAINING, "modules in place", trained_types)
    yield Check(GUIDE, TRAINING, "three steps, then convert", learns)
    for names in FUSIONS:
        for mode in ("eval", "train"):
            words = f"{', '.join(names)}, {mode}"
            yield Check(GUIDE, "fuse_modules", words, partial(fused, names, mode))
