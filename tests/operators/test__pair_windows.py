from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.dtypes import INT8, UINT8
from onnxq.operator import NodeCall
from onnxq.operators import _pair_windows
from onnxq.operators._pair_windows import (
    PairSums,
    conv_correction,
    conv_integer_correction,
    conv_sums,
)
from onnxq.operators._pairs import depthwise_places
from onnxq.operators._windows import geometry
from onnxq.qparams import PerTensor, QParams
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationMode, joined
from tests.operators.test__pairs import integers, saturating, wrapping

SAT, WRAPS = SaturationMode.SATURATES, SaturationMode.WRAPS
DEPTHWISE = SaturationMode.WRAPS_DEPTHWISE
PADS = {"pads": [1, 0, 2, 1], "strides": [2, 1]}


def qparams(dtype: str, zero: int) -> QParams:
    kind = {"uint8": UINT8, "int8": INT8}[dtype]
    return QParams(np.ones((), np.float32), np.array(zero, dtype), kind, PerTensor())


def seen(x: npt.NDArray[np.int8], zero: int, taps: tuple[int, int]) -> npt.NDArray[np.int8]:
    """(N, C, H, W, *taps) by PADS."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1)), constant_values=zero)
    return np.lib.stride_tricks.sliding_window_view(padded, taps, axis=(2, 3))[:, :, ::2]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("channels", [4, 6])
@pytest.mark.parametrize("saturation_mode", [SAT, WRAPS])
def test_channels_are_innermost_and_padding_takes_part(
    group: int, channels: int, saturation_mode: SaturationMode
) -> None:
    x, w = (
        integers(1, (2, channels, 7, 6), "uint8", 0.5),
        integers(2, (4, channels // group, 3, 2), "int8", 0.5),
    )
    windows = geometry(NodeCall("Conv", (), attributes=PADS), (7, 6), (3, 2))
    points = (qparams("uint8", 200), qparams("int8", 0))
    found = conv_correction(
        x, points[0], w, points[1], group, windows, Accumulator(saturation_mode)
    )
    view = seen(x, 200, (3, 2))
    size, outputs = channels // group, 4 // group
    wanted = np.zeros((2, 4, *view.shape[2:4]), np.int64)
    for g in range(group):
        part = view[:, g * size : (g + 1) * size].transpose(0, 2, 3, 4, 5, 1)
        b = w[g * outputs : (g + 1) * outputs].transpose(2, 3, 1, 0).reshape(-1, outputs)
        rows = part.reshape(-1, len(b))
        change = (saturating if saturation_mode is SAT else wrapping)(rows, b)
        wanted[:, g * outputs : (g + 1) * outputs] = np.moveaxis(
            change.reshape(*part.shape[:3], outputs), -1, 1
        )
    assert wanted.any()
    assert found is not None
    assert np.array_equal(found, wanted)


def test_notes_name_weights_in_their_own_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pair_windows, "ELEMENTS", 1)  # image by image
    x = np.full((3, 4, 3, 3), 255, np.uint8)
    w = np.zeros((4, 2, 3, 3), np.int8)
    w[3, 0, 1, 2] = w[3, 1, 1, 2] = 100  # neighbours in K, which is 9 apart in W[3]
    windows = geometry(NodeCall("Conv", ()), (3, 3), (3, 3))
    notes: list[Overflows] = []
    accumulator = Accumulator(SAT, notes.append)
    conv_correction(x, qparams("uint8", 0), w, qparams("int8", 0), 2, windows, accumulator)
    found = joined(notes)
    assert found is not None
    entry = (found.channel, found.first, found.second, found.count)
    assert [int(part.item()) for part in entry] == [3, 5, 14, 3]
    assert found.change == 200 * 255 - 32767


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [12, 16, 24])
def test_depthwise_taps_wrap_on_arm(dtype: str, channels: int) -> None:
    x, w = (
        integers(1, (2, channels, 7, 6), dtype, 0.5),
        integers(2, (channels, 1, 3, 3), "int8", 0.5),
    )
    zero = 9
    windows = geometry(NodeCall("Conv", (), attributes=PADS), (7, 6), (3, 3))
    points = (qparams(dtype, zero), qparams("int8", 0))
    notes: list[Overflows] = []
    found = conv_correction(
        x, points[0], w, points[1], channels, windows, Accumulator(DEPTHWISE, notes.append)
    )
    low = seen(x, zero, (3, 3)).reshape(2, channels, 4, 5, 9) == np.iinfo(dtype).min
    wanted = np.zeros((2, channels, 4, 5), np.int64)
    for i, j in zip(*depthwise_places(9, channels), strict=True):
        both = (w[:, 0].reshape(-1, 9)[:, [i, j]] == -128).all(1)
        wanted -= 65536 * (low[..., i] & low[..., j] & both[:, None, None])
    assert wanted.any() == (channels != 12)
    assert np.array_equal(0 if found is None else found, wanted if found is not None else 0)
    assert sum(int(note.count.sum()) for note in notes) * -65536 == wanted.sum()


@pytest.mark.parametrize(("x_dtype", "w_dtype"), [("int8", "uint8"), ("int8", "int8")])
def test_conv_integer_multiplies_the_weight_by_the_image(x_dtype: str, w_dtype: str) -> None:
    x, w = integers(1, (2, 6, 7, 6), x_dtype, 0.5), integers(2, (4, 3, 3, 2), w_dtype, 0.5)
    windows = geometry(NodeCall("ConvInteger", (), attributes=PADS), (7, 6), (3, 2))
    saturation_mode = SAT if w_dtype == "uint8" else WRAPS
    found = conv_integer_correction(x, 3, w, 2, windows, Accumulator(saturation_mode))
    view = seen(x, 3, (3, 2))
    wanted = np.zeros((2, 4, *view.shape[2:4]), np.int64)
    for g in range(2):
        image = view[:, 3 * g : 3 * g + 3].transpose(1, 4, 5, 0, 2, 3).reshape(18, -1)
        rows = w[2 * g : 2 * g + 2].reshape(2, -1)
        change = (saturating if saturation_mode is SAT else wrapping)(rows, image)
        wanted[:, 2 * g : 2 * g + 2] = np.moveaxis(change.reshape(2, 2, *view.shape[2:4]), 1, 0)
    assert wanted.any()
    assert found is not None
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("saturation_mode", "x", "depthwise", "symmetric", "wanted"),
    [
        (SAT, "uint8", False, True, PairSums.DENSE),
        (SAT, "uint8", False, False, PairSums.DENSE),
        (SAT, "uint8", True, True, PairSums.EXACT),
        (SAT, "int8", False, True, PairSums.EXACT),
        (WRAPS, "uint8", False, True, PairSums.DENSE),
        (WRAPS, "int8", False, True, PairSums.EXACT),
        (WRAPS, "int8", False, False, PairSums.DENSE),
        (WRAPS, "int8", True, True, PairSums.DEPTHWISE),
        (WRAPS, "int8", True, False, PairSums.EXACT),
        (DEPTHWISE, "uint8", True, True, PairSums.DEPTHWISE),
        (DEPTHWISE, "uint8", False, True, PairSums.EXACT),
        (SaturationMode.EXACT, "uint8", True, True, PairSums.EXACT),
    ],
)
def test_kernels_that_add_pairs(
    saturation_mode: SaturationMode, x: str, depthwise: bool, symmetric: bool, wanted: PairSums
) -> None:
    w = np.zeros((16, 1 if depthwise else 8, 3, 3), np.int8)
    group = 16 if depthwise else 1
    assert conv_sums(saturation_mode, np.dtype(x), w, group, symmetric) is wanted
