"""Batch norms that are in eval mode on purpose do not move."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Self

import pytest
import torch
from torch import nn

from onnxq.pytorch import prepare_qat
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats, update_bn_stats
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.pytorch.train.modes import modes_of

pytestmark = pytest.mark.oracle

X = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))


class Frozen(nn.Sequential):
    """A model whose train() leaves its second part alone."""

    def train(self, mode: bool = True) -> Self:
        """The model in that mode, but for one norm."""
        super().train(mode)
        self[1].eval()
        return self


def parts() -> list[nn.Module]:
    """A norm that is folded, and one that is not."""
    return [
        nn.Conv2d(3, 4, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 2, 1),
        nn.BatchNorm2d(2),
    ]


def means(model: nn.Module) -> list[torch.Tensor]:
    return [model.get_submodule(f"{i}").running_mean.clone() for i in (1, 3, 5)]  # type: ignore[operator]


def test_norms_in_eval_mode_stay_when_the_model_is_trained() -> None:
    model = nn.Sequential(*parts())
    model[1].eval()
    model[3].eval()
    prepared = prepare_qat(model, inputs=X)
    found: Any = prepared.meta[ANNOTATIONS]  # type: ignore[index]  # of a graph
    assert "batch norm '1', '3' is in eval mode" in found.notes[-1]
    before = means(prepared)
    for made in (prepared, prepared.train(), prepared.eval().train(), copy.deepcopy(prepared)):
        made(X)
        moved = [not torch.equal(*pair) for pair in zip(before, means(made), strict=True)]
        assert moved == [False, False, True]
    again = pickle.loads(pickle.dumps(prepared)).train()
    again(X)
    assert torch.equal(before[1], means(again)[1])
    prepared.apply(update_bn_stats).train()(X)
    assert not any(torch.equal(*pair) for pair in zip(before, means(prepared), strict=True))
    before = means(prepared)
    prepared.apply(freeze_bn_stats).train()(X)
    assert torch.equal(before[1], means(prepared)[1])


def test_a_train_of_its_own_is_asked() -> None:
    model = Frozen(*parts())
    for mode in (True, False):
        assert modes_of(model.train(mode)).frozen == {"1"}


def test_a_part_in_eval_mode_is_no_frozen_norm() -> None:
    model = nn.Sequential(nn.Sequential(*parts()).eval())
    modes = modes_of(model)
    assert not modes.frozen
    assert {"0", "0.1"} <= modes.in_eval


def deep(of_weights: float) -> nn.Sequential:
    """Layers whose values shrink by that factor each, but for batch norm."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        with torch.no_grad():
            conv.weight.mul_(of_weights)
        layers += [conv, nn.BatchNorm2d(3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(75, 2)).eval()


def gradient(model: nn.Module) -> float:
    loss: Any = model(X).square().mean()
    loss.backward()
    found = [float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None]
    return max(found)


def test_ranges_cover_train_mode_where_statistics_are_those_of_other_data() -> None:
    model = deep(0.02)
    prepared = prepare_qat(model, inputs=X)
    notes: Any = prepared.meta[ANNOTATIONS]  # type: ignore[index]  # of a graph
    assert "times as large with the statistics of a batch" in notes.notes[-1]
    assert gradient(prepared) < 2 * gradient(copy.deepcopy(model).train())  # clipped: 1e9 times


def test_ranges_of_a_model_whose_statistics_fit_are_those_of_eval_mode() -> None:
    model = deep(1.0).train()
    for _ in range(50):
        model(X)
    notes: Any = prepare_qat(model.eval(), inputs=X).meta[ANNOTATIONS]  # type: ignore[index]
    assert not any("statistics of a batch" in note for note in notes.notes)
