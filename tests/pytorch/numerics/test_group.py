"""Tensors that share a FakeQuantize: its observer sees each batch of them as a whole."""

from __future__ import annotations

import pytest
import torch

from onnxq.observers import HistogramObserver
from onnxq.pytorch import FakeQuantize
from onnxq.pytorch.nn.quantized import Requantize
from onnxq.pytorch.numerics.group import GroupMember, WholeBatch


def pair(fake: FakeQuantize) -> tuple[GroupMember, GroupMember]:
    batch = WholeBatch(fake, 2)
    return GroupMember(fake, batch, 0), GroupMember(fake, batch, 1)


def test_the_range_is_that_of_both_tensors() -> None:
    fake = FakeQuantize(quant_min=0, quant_max=255)
    narrow, wide = pair(fake)
    for _ in range(3):  # a moving average of one tensor after the other would lie between them
        narrow(torch.tensor([0.0, 1.0]))
        wide(torch.tensor([0.0, 51.0]))
    assert float(fake.scale) == pytest.approx(51 / 255)


def test_values_pass_unrounded_until_a_whole_batch_was_seen() -> None:
    narrow, wide = pair(FakeQuantize(quant_min=0, quant_max=255))
    x = torch.tensor([0.0, 0.123])
    assert torch.equal(narrow(x), x)
    wide(torch.tensor([0.0, 51.0]))
    assert torch.allclose(narrow(x), torch.tensor([0.0, 0.2]))


def test_a_batch_that_was_broken_off_does_not_count_twice() -> None:
    fake = FakeQuantize(quant_min=0, quant_max=255)
    narrow, wide = pair(fake)
    narrow(torch.tensor([0.0, 100.0]))  # forward failed behind this
    narrow(torch.tensor([0.0, 1.0]))
    wide(torch.tensor([0.0, 51.0]))
    assert float(fake.scale) == pytest.approx(51 / 255)


def test_other_observers_see_the_data_themselves() -> None:
    fake = FakeQuantize(HistogramObserver)
    narrow, wide = pair(fake)
    narrow(torch.linspace(0, 1, 100))
    wide(torch.linspace(0, 51, 100))
    assert float(fake.scale) > 0.1


def test_a_copy_is_not_observed() -> None:
    fake = FakeQuantize(quant_min=0, quant_max=255)
    fake(torch.tensor([0.0, 51.0]))
    rounded = GroupMember(fake)(torch.tensor([0.13, 999.0]))
    assert torch.allclose(rounded, torch.tensor([0.2, 51.0]))
    assert float(fake.scale) == pytest.approx(51 / 255)


def test_after_convert_the_requantize_rounds() -> None:
    x = torch.tensor([0.13, 999.0])
    assert torch.allclose(GroupMember(Requantize(0.2, 0))(x), torch.tensor([0.2, 51.0]))
