"""Axes that forward takes in other lengths are found; others are left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onnxq.pytorch.arguments.axes import Axes
from onnxq.pytorch.arguments.batch_axes import length_axes
from onnxq.pytorch.arguments.bound_inputs import bind

pytestmark = pytest.mark.oracle

BATCH = Axes({"ids": {0: "batch"}, "mask": {0: "batch"}, "x": {0: "batch"}}, {})


class Text(nn.Module):
    """Words with places, of which there are as many as in the example."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(10, 4), nn.Embedding(5, 4)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, 4)."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        summed: Tensor = (x * mask[..., None]).sum(1)
        return summed


def test_ids_and_mask_have_one_length_though_the_embedding_ends() -> None:
    model = Text()
    bound = bind(model, (torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5)))
    assert length_axes(model, bound, BATCH) == {"ids": {1}, "mask": {1}}


class Features(nn.Module):
    """Rows of features, as many as there are steps."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        y: Tensor = self.fc(x)
        return y


@pytest.mark.parametrize(("steps", "found"), [(5, {"x": {1}}), (4, {"x": {1}}), (1, {})])
def test_features_are_no_length(steps: int, found: dict[str, set[int]]) -> None:
    bound = bind(Features(), torch.ones(2, steps, 4))
    assert length_axes(Features(), bound, BATCH) == found


def test_sizes_of_images_stay() -> None:
    model = nn.Identity()
    assert length_axes(model, bind(model, torch.ones(2, 3, 8, 8)), Axes({}, {})) == {}
