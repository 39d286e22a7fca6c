from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq.errors import CalibrationError
from onnxq.observers import (
    MinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    Observer,
    PerChannelMinMaxObserver,
)
from onnxq.pytorch.numerics.min_max import extremes

SHAPES = [(7,), (4, 5), (3, 4, 5), (2, 3, 4, 5), (1, 1, 1), (6, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_observer_learns_from_min_and_max_what_it_learns_from_the_tensor(
    shape: tuple[int, ...],
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    for axis in [None, *range(-len(shape), len(shape))]:
        specs = (
            [MinMaxObserver.with_args(), NarrowRangeObserver.with_args(ch_axis=None)]
            if axis is None
            else [
                kind.with_args(ch_axis=axis)
                for kind in (
                    PerChannelMinMaxObserver,
                    MovingAveragePerChannelMinMaxObserver,
                    NarrowRangeObserver,
                )
            ]
        )
        for spec in specs:
            whole, ends = spec(), spec()
            whole.observe(x.numpy(), 0)
            ends.observe(extremes(x, axis), 0)
            for key, array in whole.state().items():
                np.testing.assert_array_equal(ends.state()[key], array, err_msg=f"{spec} {axis}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_come_as_float32(dtype: torch.dtype) -> None:
    x = torch.randn(3, 4).to(dtype)
    assert extremes(x, 0).dtype == np.float32
    np.testing.assert_array_equal(extremes(x, None)[0], x.min().float().numpy())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("axis", [None, 1])
def test_what_is_not_finite_is_counted_and_annotated(value: float, axis: int | None) -> None:
    x = torch.zeros(2, 3)
    x[1, 2] = x[1, 1] = value
    with pytest.raises(CalibrationError, match=r"2 of 6 values are NaN .* at \[1, 1\] of shape"):
        extremes(x, axis)


def test_a_float64_beyond_float32_is_infinite() -> None:
    with pytest.raises(CalibrationError, match="infinite"):
        extremes(torch.tensor([1e300, 0.0], dtype=torch.float64), None)


def test_a_missing_axis_is_named() -> None:
    with pytest.raises(CalibrationError, match=r"shape \[2, 3\] has no ch_axis 2"):
        extremes(torch.zeros(2, 3), 2)


def test_the_meta_device_holds_nothing_to_observe() -> None:
    with pytest.raises(CalibrationError, match=r"meta device.*disable_observer"):
        extremes(torch.empty(2, 3, device="meta"), None)


def test_an_observer_with_an_observe_of_its_own_is_shown_the_tensor() -> None:
    class MedianObserver(MinMaxObserver):
        def observe(self, x: np.ndarray, index: int) -> None:
            super().observe(np.median(x, keepdims=True), index)

    assert MinMaxObserver.needs_range_alone
    assert not MedianObserver.needs_range_alone
    assert not Observer.needs_range_alone
