"""Ends of tensors on their device: the numbers of onnxq's observers, without a look at one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from onnxq.errors import CalibrationError
from onnxq.observers import (
    AmaxObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    PerChannelMinMaxObserver,
)
from onnxq.pytorch.numerics.min_max import UNSEEN, MinMaxRule, min_max_of, observer_state, rule_of

if TYPE_CHECKING:
    from torch import Tensor

    from onnxq.observers import Observer, ObserverSpec

FINE = 2.0**-60
SPECS = [
    MinMaxObserver.with_args(),
    MinMaxObserver.with_args(eps=FINE),
    MinMaxObserver.with_args(dtype="quint8", qscheme="per_tensor_symmetric"),
    MinMaxObserver.with_args(dtype="int16", qscheme="per_tensor_symmetric", eps=FINE),
    PerChannelMinMaxObserver.with_args(reduce_range=True),
    MovingAverageMinMaxObserver.with_args(averaging_constant=0.3, quant_min=0, quant_max=100),
    MovingAveragePerChannelMinMaxObserver.with_args(averaging_constant=0.01),
    MovingAveragePerChannelMinMaxObserver.with_args(
        dtype="qint8", qscheme="per_channel_symmetric", quant_min=-127, quant_max=127
    ),
    NarrowRangeObserver.with_args(),
    NarrowRangeObserver.with_args(ch_axis=None, quant_max=7),
]
KINDS = ["normal", "positive", "negative", "zeros", "tiny", "dead channel", "huge", "subnormal"]


def batches(kind: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(kind))
    found = []
    for i in range(4):
        x = torch.randn(6, 7, generator=generator) * (i + 1)
        found.append(
            {
                "normal": x,
                "positive": x.abs() + 1,
                "negative": -x.abs() - 1,
                "zeros": x * 0,
                "tiny": x * 1e-12,
                "dead channel": x * (torch.arange(6) > 2)[:, None],
                "huge": x * 1e37,
                "subnormal": x * 1e-42,
            }[kind]
        )
    return found


def rule(observer: Observer) -> MinMaxRule:
    found = rule_of(observer)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_scales_and_zero_points_are_the_observers_to_the_bit(spec: ObserverSpec, kind: str) -> None:
    observer = spec()
    own = rule(observer)
    axis = 0 if observer.qscheme.per_channel else None
    seen = torch.full((2,) if axis is None else (2, 6), UNSEEN)
    span = torch.tensor(own.span, dtype=torch.float32)
    for index, x in enumerate(batches(kind)):
        observer.observe(x.numpy(), index)
        seen, left_out = own.seen_with(seen, min_max_of(x, axis))
        assert not left_out
        wanted = observer.calculate_qparams()
        scale, zero_point = own.scale_and_zero_point(seen, span)
        np.testing.assert_array_equal(scale.numpy(), wanted.scale)
        np.testing.assert_array_equal(zero_point.numpy(), wanted.zero_point)
    resumed = spec()
    resumed.load_state(observer_state(resumed, seen.numpy()))
    observer.compact()
    for key, array in observer.state().items():
        np.testing.assert_array_equal(resumed.state()[key], array, err_msg=key)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_batch_that_is_not_finite_is_left_out(spec: ObserverSpec, value: float) -> None:
    own = rule(spec())
    axis = 0 if spec().qscheme.per_channel else None
    x = torch.randn(6, 7)
    seen, _ = own.seen_with(torch.full_like(min_max_of(x, axis), UNSEEN), min_max_of(x, axis))
    for bad in (torch.full_like(x, value), torch.where(torch.arange(7) == 3, value, x)):
        after, left_out = own.seen_with(seen, min_max_of(bad, axis))
        assert bool(left_out)
        assert torch.equal(after, seen)


def test_a_range_wider_than_float32_is_left_out_where_its_width_counts() -> None:
    wide = torch.tensor([-3e38, 3e38])
    unseen = torch.full((2,), UNSEEN)
    for qscheme, refused in (("per_tensor_affine", True), ("per_tensor_symmetric", False)):
        own = rule(MinMaxObserver(dtype="qint8", qscheme=qscheme))
        assert bool(own.seen_with(unseen, min_max_of(wide, None))[1]) is refused


def test_observers_that_look_at_values_have_no_rule_and_nor_have_subclasses() -> None:
    class Doubled(MinMaxObserver):
        pass

    for observer in (HistogramObserver(), AmaxObserver(), Doubled()):
        assert rule_of(observer) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_min_and_max_are_float32(dtype: torch.dtype) -> None:
    x = torch.randn(3, 4).to(dtype)
    assert min_max_of(x, 0).dtype == torch.float32
    assert min_max_of(x, None).tolist() == [-x.min().float().item(), x.max().float().item()]


def test_an_empty_tensor_has_the_min_and_max_of_nothing() -> None:
    assert min_max_of(torch.empty(0, 3), None).tolist() == [UNSEEN] * 2
    assert min_max_of(torch.empty(0, 3), 1).tolist() == [[UNSEEN] * 3] * 2


def test_a_missing_axis_and_a_tensor_without_values_are_named() -> None:
    with pytest.raises(CalibrationError, match=r"shape \[2, 3\] has no ch_axis 2"):
        min_max_of(torch.zeros(2, 3), 2)
    with pytest.raises(CalibrationError, match=r"meta device.*disable_observer"):
        min_max_of(torch.empty(2, 3, device="meta"), None)
