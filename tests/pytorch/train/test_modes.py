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
