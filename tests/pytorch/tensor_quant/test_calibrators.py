from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import torch

from onnxq.observers import HistogramObserver
from onnxq.pytorch.tensor_quant import HistogramCalibrator, MaxCalibrator, fake_tensor_quant

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(5)
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "normal": lambda: torch.tensor(RNG.normal(size=40_000), dtype=torch.float32),
    "heavy": lambda: torch.tensor(RNG.standard_t(3, size=40_000), dtype=torch.float32),
    "relu": lambda: torch.tensor(RNG.normal(size=40_000), dtype=torch.float32).clamp(min=0),
}


def squared_error(x: torch.Tensor, amax: float, bits: int, unsigned: bool) -> float:
    """Sum of (x - fake_quantize(x))^2 in float64, by the formula."""
    bound = 2 ** (bits - (not unsigned)) - 1
    v = x.double().numpy()
    step = amax / bound
    rounded = np.clip(np.rint(v / step), 0 if unsigned else -bound, bound) * step
    return float(((v - rounded) ** 2).sum())


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0,), (0, 2), (-3, 2)])
def test_max_is_the_largest_absolute_value_of_all_batches(
    axis: int | tuple[int, ...] | None,
) -> None:
    calibrator = MaxCalibrator(8, axis, False, track_amax=True)
    batches = torch.randn(5, 4, 3, 6)
    for x in batches:
        calibrator.collect(x)
    calibrator.collect(torch.empty(0, 3, 6))
    kept = set() if axis is None else {a % 3 for a in np.atleast_1d(axis).tolist()}
    others = tuple(i for i in range(3) if i not in kept)
    each = np.abs(batches.numpy()).max(axis=tuple(i + 1 for i in others), keepdims=True)
    wanted = each.max(axis=0)
    found = calibrator.compute_amax()
    assert found is not None
    assert found.shape == (() if axis is None else wanted.shape)
    np.testing.assert_array_equal(found.numpy(), wanted.reshape(found.shape))
    for seen, batch in zip(calibrator.amaxs, each, strict=True):
        np.testing.assert_array_equal(cast("np.ndarray[tuple[int], np.dtype[np.float32]]", seen),
                                      batch.reshape(found.shape))  # fmt: skip
    calibrator.reset()
    assert calibrator.compute_amax() is None
    assert not calibrator.amaxs


def test_max_refuses_other_channels_another_axis_and_nan() -> None:
    calibrator = MaxCalibrator(8, 0, False)
    calibrator.collect(torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"from \[4, 1\] to \[3, 1\]"):
        calibrator.collect(torch.ones(3, 2))
    with pytest.raises(ValueError, match="NaN or Inf"):
        calibrator.collect(torch.full((4, 2), torch.nan))
    with pytest.raises(ValueError, match="has 2 axes"):
        MaxCalibrator(8, 2, False).collect(torch.ones(3, 2))


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.9, 100.0])
def test_percentile_is_numpys_to_a_bin(name: str, percentile: float) -> None:
    x = TENSORS[name]()
    calibrator = HistogramCalibrator(8, None, False)
    for batch in x.chunk(7):
        calibrator.collect(batch)
    found = calibrator.compute_amax("percentile", percentile=percentile)
    size = np.sort(x.abs().numpy())
    assert found is not None
    # values within a bin count as spread evenly over it: two bins either way
    bin_width = 2.0 ** np.ceil(np.log2(size[-1])) / 4096
    wanted = size[min(int(np.ceil(percentile / 100 * size.size)), size.size) - 1]
    assert abs(float(found) - wanted) <= 2 * bin_width + 1e-6 * wanted


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("bits", [3, 4, 6, 8])
@pytest.mark.parametrize("unsigned", [False, True])
def test_mse_is_near_the_least_error(name: str, bits: int, unsigned: bool) -> None:
    x = TENSORS[name]()
    x = x.abs() if unsigned else x
    calibrator = HistogramCalibrator(bits, None, unsigned)
    calibrator.collect(x)
    found = calibrator.compute_amax("mse")
    assert found is not None
    top = float(x.abs().max())
    least = min(squared_error(x, top * f, bits, unsigned) for f in np.linspace(0.02, 1.05, 200))
    # the search accepts 5% more on so few values, and 3% are lost to the bins
    assert squared_error(x, float(found), bits, unsigned) <= 1.08 * least


@pytest.mark.parametrize("unsigned", [False, True])
def test_entropy_cuts_outliers_and_keeps_the_mass(unsigned: bool) -> None:
    x = TENSORS["normal"]().abs() if unsigned else TENSORS["normal"]()
    x[:3] = 60.0
    calibrator = HistogramCalibrator(8, None, unsigned)
    calibrator.collect(x)
    found = calibrator.compute_amax("entropy")
    assert found is not None
    assert 2.0 < float(found) < 30.0


def test_one_histogram_serves_every_method_in_any_order_of_batches() -> None:
    batches = list(TENSORS["heavy"]().chunk(9))
    forwards, backwards = HistogramCalibrator(8, None, False), HistogramCalibrator(8, None, False)
    for one, other in zip(batches, reversed(batches), strict=True):
        forwards.collect(one)
        backwards.collect(other)
    for method in ("percentile", "mse", "entropy"):
        assert forwards.compute_amax(method) == backwards.compute_amax(method)


def test_signed_mse_is_the_histogram_observers() -> None:
    x = TENSORS["heavy"]()
    calibrator = HistogramCalibrator(8, None, False)
    calibrator.collect(x)
    observer = HistogramObserver(
        dtype="qint8", qscheme="per_tensor_symmetric", quant_min=-127, quant_max=127
    )
    observer.observe(x.numpy(), 0)
    found = calibrator.compute_amax("mse")
    assert found is not None
    # the observer sees signs; its search begins at a range with two ends
    error = squared_error(x, float(observer.calculate_qparams().scale) * 127, 8, False)
    assert squared_error(x, float(found), 8, False) <= 1.05 * error


def test_skip_zeros_leaves_them_out_of_the_percentile() -> None:
    x = torch.cat([torch.zeros(9000), torch.linspace(0, 1, 1001)[1:]])
    amax = []
    for skip in (False, True):
        calibrator = HistogramCalibrator(8, None, True, skip_zeros=skip)
        calibrator.collect(x)
        calibrator.collect(torch.zeros(3))
        amax.append(float(calibrator.compute_amax("percentile", percentile=95.0) or 0))
    assert amax == pytest.approx([0.5, 0.95], abs=2e-3)


def test_no_data_gives_none_and_reset_forgets() -> None:
    calibrator = HistogramCalibrator(8, None, False)
    assert calibrator.compute_amax("mse") is None
    calibrator.collect(torch.ones(3))
    assert calibrator.compute_amax("mse") is not None
    calibrator.reset()
    assert calibrator.compute_amax("entropy") is None


def test_bad_arguments_are_the_documented_errors() -> None:
    with pytest.raises(NotImplementedError, match="per tensor only"):
        HistogramCalibrator(8, 0, False)
    calibrator = HistogramCalibrator(8, None, False)
    calibrator.collect(torch.ones(3))
    with pytest.raises(TypeError, match="percentile, mse, entropy"):
        calibrator.compute_amax("max")
    for percentile in (-1.0, 100.5):
        with pytest.raises(ValueError, match="percentile"):
            calibrator.compute_amax("percentile", percentile=percentile)
    with pytest.raises(ValueError, match="NaN or Inf"):
        calibrator.collect(torch.tensor([1.0, torch.nan]))
    with pytest.raises(ValueError, match="2 to 16"):
        MaxCalibrator(32, None, False)


@pytest.mark.parametrize("bits", [2, 8, 16])
@pytest.mark.parametrize("method", ["percentile", "mse", "entropy"])
def test_every_method_gives_a_usable_amax_at_every_width(bits: int, method: str) -> None:
    for unsigned in (False, True):
        x = TENSORS["relu"]()
        calibrator = HistogramCalibrator(bits, None, unsigned)
        calibrator.collect(x)
        found = calibrator.compute_amax(method)
        assert found is not None
        assert 0 < float(found) <= 1.6 * float(x.max())
        assert fake_tensor_quant(x, found, bits, unsigned).isfinite().all()
