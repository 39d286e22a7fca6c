from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import (
    AmaxObserver,
    EntropyObserver,
    HistogramObserver,
    NarrowRangeObserver,
    Observer,
    ObserverSpec,
    PercentileObserver,
)
from onnxq.qparams import PerChannel, PerTensor

X = np.random.default_rng(3).standard_t(4, size=(6, 5, 40)).astype(np.float32)


def seen(observer: Observer, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = X) -> Observer:
    observer.observe(x, 0)
    return observer


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("quant_max", [1, 7, 127])
def test_max_is_the_narrow_range_observer(axis: int | None, quant_max: int) -> None:
    ours = seen(AmaxObserver(quant_max, axis)).calculate_qparams()
    assert ours == seen(NarrowRangeObserver(quant_max, axis)).calculate_qparams()


@pytest.mark.parametrize(
    ("method", "spec"),
    [
        ("percentile", PercentileObserver.with_args(percentile=99.0)),
        ("mse", HistogramObserver.with_args()),
        ("entropy", EntropyObserver.with_args()),
    ],
)
def test_histogram_methods_are_the_observers_of_that_criterion(
    method: str, spec: ObserverSpec
) -> None:
    spec = spec.with_args(
        dtype="qint8", qscheme="per_tensor_symmetric", quant_min=-127, quant_max=127
    )
    ours = seen(AmaxObserver(method=method, percentile=99.0))
    assert ours.calculate_qparams() == seen(spec()).calculate_qparams()


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
@pytest.mark.parametrize(("dtype", "quant_max"), [("uint8", 255), ("uint8", 15), ("uint16", 65535)])
def test_unsigned_integers_have_zero_point_0(method: str, dtype: str, quant_max: int) -> None:
    observer = AmaxObserver(quant_max, dtype=dtype, method=method)
    qparams = seen(observer, np.abs(X)).calculate_qparams()
    assert qparams.dtype.name == dtype
    assert int(qparams.zero_point) == 0
    assert 0.3 * X.max() / quant_max < qparams.scale < 1.05 * np.abs(X).max() / quant_max


def test_unsigned_integers_refuse_negative_values_and_name_the_batch() -> None:
    observer = AmaxObserver(255, dtype="uint8")
    with pytest.raises(CalibrationError, match=r"batch 9: values down to -.*signed type"):
        observer.observe(X, 9)


@pytest.mark.parametrize("method", ["max", "percentile", "mse", "entropy"])
def test_uint8_around_128_is_int8_around_0(method: str) -> None:
    signed = seen(AmaxObserver(method=method)).calculate_qparams()
    shifted = seen(AmaxObserver(method=method, dtype="uint8", middle=128)).calculate_qparams()
    assert shifted.scale == signed.scale
    assert (int(shifted.zero_point), shifted.dtype.name) == (128, "uint8")


def test_fixed_amax_needs_no_data_and_data_does_not_change_it() -> None:
    observer = AmaxObserver(amax=254.0, scale_amax=0.5)
    assert observer.calculate_qparams().scale == 1
    assert seen(observer).calculate_qparams().scale == 1
    assert observer.calculate_qparams().granularity == PerTensor()


def test_fixed_amax_per_channel() -> None:
    observer = AmaxObserver(1, ch_axis=1, amax="1 2 3 4 5.5")
    for _ in range(2):
        qparams = observer.calculate_qparams()
        assert qparams.scale.tolist() == [1, 2, 3, 4, 5.5]
        assert qparams.granularity == PerChannel(1)
        seen(observer)
    one = seen(AmaxObserver(1, ch_axis=1, amax=2.0))
    assert one.calculate_qparams().scale.tolist() == [2.0] * 5
    with pytest.raises(CalibrationError, match="3 channels; axis 1 has 5"):
        seen(AmaxObserver(ch_axis=1, amax="1 2 3")).calculate_qparams()


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": "max_"},
        {"method": "mse", "ch_axis": 0},
        {"method": "percentile", "percentile": 0.0},
        {"amax": "1 b"},
        {"amax": ""},
        {"amax": -1.0},
        {"amax": "1 2"},
        {"amax": float("inf")},
        {"scale_amax": 0.0},
        {"quant_max": 128},
        {"quant_max": 0},
        {"middle": 128},
        {"dtype": "uint8", "middle": 127},
        {"dtype": "uint8", "middle": 128, "quant_max": 128},
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(QConfigError):
        AmaxObserver.with_args(**arguments)()


def test_amax_is_what_the_scale_says() -> None:
    assert seen(AmaxObserver()).amax() == pytest.approx(np.abs(X).max(), rel=2e-7)  # type: ignore[attr-defined]
    assert AmaxObserver(amax=3.0).has_observed
    assert not AmaxObserver().has_observed
    assert not AmaxObserver(method="mse").has_observed
    assert seen(AmaxObserver(method="mse")).has_observed  # type: ignore[attr-defined]
