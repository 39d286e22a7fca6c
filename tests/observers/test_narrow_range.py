from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import quantize
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import NarrowRangeObserver
from onnxq.qparams import PerChannel, PerTensor

W = np.random.default_rng(1).normal(size=(8, 4, 3, 3)).astype(np.float32)


@pytest.mark.parametrize("quant_max", [127, 64])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_absmax_lands_on_quant_max_and_no_integer_beyond(quant_max: int, axis: int | None) -> None:
    observer = NarrowRangeObserver(quant_max=quant_max, ch_axis=axis)
    observer.observe(W, 0)
    p = observer.calculate_qparams()
    assert p.granularity == (PerTensor() if axis is None else PerChannel(axis))
    assert (p.zero_point == 0).all()
    integers = quantize(W, p)
    assert np.abs(integers.astype(int)).max() == quant_max


def test_dead_channels_get_a_floor_relative_to_the_largest() -> None:
    w = W.copy()
    w[2] = 0
    observer = NarrowRangeObserver()
    observer.observe(w, 0)
    scale = observer.calculate_qparams().scale
    assert scale[2] == scale.max() * np.float32(2**-23)


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 3e38])
def test_scale_is_positive_and_finite_for_any_constant(value: float) -> None:
    observer = NarrowRangeObserver()
    observer.observe(np.full((2, 3), value, np.float32), 0)
    scale = observer.calculate_qparams().scale
    assert ((scale > 0) & np.isfinite(scale)).all()


def test_numbers_of_channels_must_agree() -> None:
    observer, other = NarrowRangeObserver(), NarrowRangeObserver()
    observer.observe(W, 0)
    with pytest.raises(CalibrationError, match="got 7 channels on axis 0; before there were 8"):
        observer.observe(W[:7], 1)
    other.observe(W[:7], 0)
    with pytest.raises(CalibrationError, match="merge: got 7 channels"):
        observer.merge(other)


def test_axis_outside_the_rank_is_named() -> None:
    with pytest.raises(CalibrationError, match="has no ch_axis 4"):
        NarrowRangeObserver(ch_axis=4).observe(W, 0)


def test_unsigned_types_and_too_large_integers_are_refused() -> None:
    with pytest.raises(QConfigError, match="inside uint8"):
        NarrowRangeObserver(dtype="uint8")
    with pytest.raises(QConfigError, match="inside int8"):
        NarrowRangeObserver(quant_max=128)
