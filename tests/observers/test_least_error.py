from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import LeastErrorObserver, PerChannelMinMaxObserver
from onnxq.qparams import PerChannel, QParams

if TYPE_CHECKING:
    from onnxq.observers import Observer

ROWS = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
SCHEMES = [
    ("int8", "per_channel_symmetric"),
    ("int4", "per_channel_symmetric"),
    ("int2", "per_channel_symmetric"),
    ("uint8", "per_channel_affine"),
    ("uint4", "per_channel_affine"),
    ("uint2", "per_channel_affine"),
    ("int4", "per_channel_affine"),
]
EACH = pytest.mark.parametrize(("dtype", "qscheme"), SCHEMES)


def qparams(observer: Observer, x: npt.NDArray[np.float32] = ROWS) -> QParams:
    observer.observe(x, 0)
    return observer.calculate_qparams()


def errors(x: npt.NDArray[np.float32], p: QParams) -> npt.NDArray[np.float64]:
    integers = quantize(x, p)
    np.maximum(
        integers, -127 if integers.dtype == np.int8 else 0, out=integers
    )  # as weights are written
    difference = dequantize(integers, p).astype(np.float64) - x
    return np.asarray((difference**2).sum(axis=1))


@EACH
@pytest.mark.parametrize("magnitude", [1e-12, 1.0, 1e12])
def test_no_channel_is_worse_than_min_max(dtype: str, qscheme: str, magnitude: float) -> None:
    x = ROWS * np.float32(magnitude)
    least = qparams(LeastErrorObserver(dtype=dtype, qscheme=qscheme), x)
    minmax = PerChannelMinMaxObserver.with_args(dtype=dtype, qscheme=qscheme, eps=2.0**-60)
    if dtype == "int8":
        minmax = minmax.with_args(quant_min=-127, quant_max=127)
    plain = qparams(minmax(), x)
    assert (errors(x, least) <= errors(x, plain) * (1 + 1e-6)).all()


@EACH
def test_does_not_depend_on_magnitude(dtype: str, qscheme: str) -> None:
    small, large = (
        qparams(LeastErrorObserver(dtype=dtype, qscheme=qscheme), ROWS * np.float32(2.0**e))
        for e in (-20, 20)
    )
    assert np.array_equal(small.scale * np.float32(2.0**40), large.scale)
    assert np.array_equal(small.zero_point, large.zero_point)


def test_symmetric_search_finds_what_exhaustion_finds() -> None:
    p = qparams(LeastErrorObserver(dtype="int4"))
    tried = np.abs(ROWS).max(axis=1)[:, None] / 7 * np.linspace(0.2, 1.2, 4000)
    best = np.full(len(ROWS), np.inf)
    for scale in tried.T.astype(np.float32):
        graph_qparams = QParams(scale, np.zeros(scale.shape, np.int8), p.dtype, PerChannel(0))
        best = np.minimum(best, errors(ROWS, graph_qparams))
    assert (errors(ROWS, p) <= best * 1.02).all()


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_channels_are_those_of_the_axis(axis: int) -> None:
    x = ROWS.reshape(8, 5, 64)
    p = qparams(LeastErrorObserver(ch_axis=axis), x)
    assert p.granularity == PerChannel(axis)
    for channel in (0, x.shape[axis] - 1):
        alone = qparams(LeastErrorObserver(), x.take(channel, axis).reshape(1, -1))
        assert alone.scale[0] == p.scale[channel]


def test_values_on_levels_are_exact() -> None:
    x = (np.random.default_rng(1).integers(-7, 8, (3, 64)) * np.float32(0.25)).astype(np.float32)
    p = qparams(LeastErrorObserver(dtype="int4"), x)
    assert errors(x, p).max() < 1e-10


def test_channels_of_zeros_have_a_scale() -> None:
    x = ROWS.copy()
    x[3] = 0
    p = qparams(LeastErrorObserver(dtype="int4"), x)
    assert not quantize(x, p)[3].any()


def test_int8_is_searched_for_integers_from_minus_127() -> None:
    assert LeastErrorObserver().quant_min == -127
    assert LeastErrorObserver(dtype="int4").quant_min == -8


def test_a_range_that_is_given_is_searched() -> None:
    p = qparams(LeastErrorObserver(quant_min=-64, quant_max=64))
    coarse = np.abs(ROWS).max(axis=1) / p.scale
    assert (coarse > 60).all()
    assert (coarse < 70).all()


def test_two_batches_are_one() -> None:
    halves, whole = LeastErrorObserver(), LeastErrorObserver()
    halves.observe(ROWS[:, 32:], 1)
    halves.observe(ROWS[:, :32], 0)
    whole.observe(ROWS, 0)
    assert halves.calculate_qparams() == whole.calculate_qparams()


def test_more_than_the_byte_limit_is_refused() -> None:
    with pytest.raises(CalibrationError, match="meant for weights"):
        LeastErrorObserver(byte_limit=100).observe(ROWS, 0)


def test_numbers_of_channels_must_agree() -> None:
    observer = LeastErrorObserver()
    observer.observe(ROWS, 0)
    with pytest.raises(CalibrationError, match="batch 1: got 3 channels"):
        observer.observe(ROWS[:3], 1)


@pytest.mark.parametrize("arguments", [{"qscheme": "per_tensor_symmetric"}, {"byte_limit": 0}])
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(QConfigError):
        LeastErrorObserver.with_args(**arguments)()
