"""Rounding as tensor operations: the same bits with numbers, without them, and on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from onnxq.pytorch.numerics.rounding import (
    IntegerRange,
    last_with,
    learned_gradients,
    numbers_of,
    passed_inside,
    rounded,
)

if TYPE_CHECKING:
    import numpy.typing as npt

QPARAMS = [(0, 255, 7), (-7, 7, 0), (-128, 127, -3), (0, 15, 15), (0, 65535, 32768)]


class OnDevice(Tensor):
    """A tensor whose numbers are not read, as on CUDA; it computes like any other."""


def drawn(qparams: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor, IntegerRange]:
    rng = np.random.default_rng(seed)
    qmin, qmax, zero = qparams
    scale = np.float32(2.0 ** rng.uniform(-30, 20))
    ends = np.array([qmin - zero, qmax - zero]) * scale
    near = np.asarray(ends[:, None] + np.array([-0.5, 0.5]) * scale, np.float32).ravel()
    x: list[npt.NDArray[np.float32]] = [near]
    for _ in range(3):
        x += [np.nextafter(x[-1], np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    x.append(np.asarray(rng.normal(size=200) * np.abs(ends).max(), np.float32))
    x.append(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3e38], np.float32))
    values = torch.from_numpy(np.concatenate(x))
    zero_point = torch.tensor(zero, dtype=torch.int32)
    return values, torch.tensor(scale), zero_point, IntegerRange(qmin, qmax, -1)


@pytest.mark.parametrize("qparams", QPARAMS)
def test_what_reads_numbers_gives_the_bits_of_what_reads_none(
    qparams: tuple[int, int, int],
) -> None:
    for seed in range(20):
        x, scale, zero, integers = drawn(qparams, seed)
        elsewhere = zero.as_subclass(OnDevice)
        numbers = numbers_of(scale, zero)
        assert numbers is not None
        assert numbers_of(scale, elsewhere) is None
        found = rounded(x, scale, zero, integers)
        wanted = rounded(x, scale, elsewhere, integers).as_subclass(Tensor)
        assert torch.equal(found.nan_to_num(), wanted.nan_to_num())
        grad = torch.linspace(1, 2, len(x))
        passed = passed_inside(grad, x, scale, zero, integers)
        as_well = passed_inside(grad, x, scale, elsewhere, integers).as_subclass(Tensor)
        assert torch.equal(passed, as_well)


def test_channels_share_the_number_of_their_zero_points_alone() -> None:
    scale = torch.tensor([0.1, 0.2])
    alike = numbers_of(scale, torch.tensor([3, 3], dtype=torch.int32))
    assert alike is not None
    assert (alike.scale, alike.zero_point) == (None, 3)
    assert numbers_of(scale, torch.tensor([3, 4], dtype=torch.int32)) is None


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_last_value_is_the_nearest_to_zero_whose_quotient_reaches_the_bound(sign: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        scale = np.float32(2.0 ** rng.uniform(-40, 40))
        bound = np.float32(sign * (rng.integers(1, 70000) + 0.5))
        x = np.float32(last_with(float(scale), float(bound), sign))
        assert sign * (x / scale) >= sign * bound
        assert sign * (np.nextafter(x, np.float32(0)) / scale) < sign * bound


def test_half_precision_is_compared_in_float32() -> None:
    x = torch.tensor([126.0, 127.0, 128.0, 129.0], dtype=torch.bfloat16)
    one, zero = torch.tensor(1.0), torch.tensor(0, dtype=torch.int32)
    passed = passed_inside(torch.ones_like(x), x, one, zero, IntegerRange(-128, 127, -1))
    assert passed.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert passed.dtype == torch.bfloat16


def test_gradient_of_a_scale_is_that_of_lsq() -> None:
    x = torch.tensor([0.3, 5.0, -9.0, -0.7])
    scale, zero = torch.tensor(0.5), torch.tensor(0, dtype=torch.int32)
    integers = IntegerRange(-7, 7, -1)
    inside, step = learned_gradients(torch.ones(4), x, scale, zero, integers)
    assert inside.tolist() == [1.0, 0.0, 0.0, 1.0]
    of_each = [1 - 0.6, 7, -7, -1 + 1.4]
    assert step.item() == pytest.approx(sum(of_each) / (4 * 7) ** 0.5, rel=1e-6)
