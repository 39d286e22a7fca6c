"""Which weights are trained in blocks, and why others are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from onnxq.observers import PerChannelMinMaxObserver
from onnxq.pytorch import annotate
from onnxq.qconfig import FakeQuantSpec, QConfigDynamic, QConfigMapping, groupwise_4bit_qat_qconfig

pytestmark = pytest.mark.oracle


class Mixed(nn.Module):
    """A convolution, a layer with batch norm behind it, and one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 8, 1), nn.BatchNorm1d(8)
        self.first, self.twice = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 8)."""
        y = self.norm(self.first(self.conv(x).mean(2)))
        return self.twice(self.twice(y).relu())  # type: ignore[no-any-return]


def test_linear_layers_are_annotated_once_each() -> None:
    found = annotate(Mixed(), torch.randn(4, 4, 6), QConfigMapping(groupwise_4bit_qat_qconfig))
    assert not found.groups
    assert {weight.block_size for weight in found.weights} == {32}
    paths = [weight.path for weight in found.weights]
    assert "first" in paths
    assert any("twice" in path for path in paths)
    assert "in groups of 32" in str(found)
    reasons = {why for name, why in found.floats.items() if "conv" in name.lower()}
    assert any("no call of one" in why for why in reasons)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (QConfigDynamic(PerChannelMinMaxObserver.with_args(dtype="uint4"), block_size=32), "round"),
        (QConfigDynamic(FakeQuantSpec(PerChannelMinMaxObserver.with_args())), "block size"),
    ],
)
def test_other_dynamic_entries_say_why_nothing_is_trained(entry: QConfigDynamic, said: str) -> None:
    found = annotate(nn.Linear(8, 4), torch.randn(4, 8), QConfigMapping(entry))
    assert not found.weights
    assert any(said in why for why in found.floats.values())
