"""Learned scales against the formulas of the paper (LSQ, Esser et al. 2020), and as deployed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.observers import StepSizeObserver
from onnxq.pytorch import LearnableFakeQuantize, convert, export, prepare_qat
from onnxq.pytorch.train.recipe import Recipe, finetune
from onnxq.qconfig import QConfigMapping, learned_4bit_qat_qconfig, learned_qat_qconfig
from tests.exact_engine import exact


def paper(v: Tensor, s: Tensor, largest: int) -> Tensor:
    """Section 2.1 and 2.2: rounding passes gradients through, scales get g of them."""
    g = 1 / math.sqrt(v.numel() / s.numel() * largest)
    scale = (s - s * g).detach() + s * g
    inside = (v / scale).clamp(-largest, largest)
    return (inside + (inside.round() - inside).detach()) * scale


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_values_and_gradients_are_those_of_the_paper(axis: int | None) -> None:
    generator = torch.Generator().manual_seed(5)
    w = torch.randn(6, 4, generator=generator).requires_grad_()
    fake = LearnableFakeQuantize(StepSizeObserver.with_args(quant_max=7, ch_axis=axis))
    y = fake(w)
    others = (0, 1) if axis is None else 1 - axis
    start = 2 * w.detach().abs().mean(others) / math.sqrt(7)
    torch.testing.assert_close(fake.scale.detach(), start)
    weights = torch.randn(6, 4, generator=generator)
    (y * weights).sum().backward()

    v = w.detach().clone().requires_grad_()
    s = fake.scale.detach().clone().requires_grad_()
    shape = [] if axis is None else [-1 if i == axis else 1 for i in range(2)]
    wanted = paper(v, s.reshape(shape), 7)
    (wanted * weights).sum().backward()  # type: ignore[no-untyped-call]  # torch's has no types
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(w.grad, v.grad)
    torch.testing.assert_close(fake.scale.grad, s.grad)


class Net(nn.Module):
    """A convolution with batch norm, a sum, a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.same, self.fc = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4)."""
        y = self.norm(self.conv(x)).relu()
        y = (y + self.same(y)).relu()
        return self.fc(y.mean((2, 3)))  # type: ignore[no-any-return]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.mark.parametrize("qconfig", [learned_qat_qconfig, learned_4bit_qat_qconfig])
def test_trained_with_learned_scales_is_converted_and_deployed(qconfig: Any) -> None:
    torch.manual_seed(1)
    images, labels = torch.randn(16, 3, 8, 8), torch.randint(4, (16,))
    model = prepare_qat(Net(), inputs=images, qconfig=QConfigMapping(qconfig), target="x86-vnni")
    scales = {n: p for n, p in model.named_parameters() if n.endswith("fake_quant.scale")}
    start = {name: scale.detach().clone() for name, scale in scales.items()}
    finetune(model, [(images, labels)], loss, Recipe(steps=6, learning_rate=1e-2))
    assert len(scales) > 3  # those of weights, and of activations
    assert all(not torch.equal(scale, start[name]) for name, scale in scales.items())
    converted = convert(model.eval())
    assert torch.equal(converted(images), model(images))
    exported = export(converted, images)
    with exact(exported) as session:
        (found,) = session.run({"x": images.numpy()})
    np.testing.assert_allclose(
        found.astype(np.float32), model(images).detach().numpy(), rtol=1e-5, atol=1e-5
    )
    assert onnxq.cross_check(exported, {"x": images.numpy()}).exact
