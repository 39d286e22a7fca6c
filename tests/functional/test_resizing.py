from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional import interpolate, upsample, upsample_bilinear, upsample_nearest
from onnxq.qtensor import quantize_per_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.qtensor import QTensor

X = quantize_per_tensor(
    np.random.default_rng(0).standard_normal((2, 3, 7, 6)).astype(np.float32), 0.03, 100, "quint8"
)


def test_nearest_repeats_elements() -> None:
    y = interpolate(X, scale_factor=(2, 3))
    assert y.qparams == X.qparams
    assert np.array_equal(y.int_repr(), X.int_repr().repeat(2, 2).repeat(3, 3))


def test_corners_stay_where_they_are_aligned() -> None:
    y = interpolate(X, (11, 13), mode="bilinear", align_corners=True)
    assert y[:, :, ::10, ::12].equal(X[:, :, ::6, ::5])


def test_other_names_are_the_same_functions() -> None:
    assert upsample(X, 9).equal(interpolate(X, 9))
    assert upsample_nearest(X, scale_factor=2).equal(interpolate(X, scale_factor=2))
    aligned = interpolate(X, 9, mode="bilinear", align_corners=True)
    assert upsample_bilinear(X, 9).equal(aligned)
    assert not aligned.equal(interpolate(X, 9, mode="bilinear"))


def test_volumes_have_nearest_only() -> None:
    assert interpolate(X[:, :, None], (2, 3, 4)).size() == (2, 3, 2, 3, 4)
    with pytest.raises(ShapeError, match=r"wanted \(N, C, H, W\)"):
        interpolate(X[:, :, None], 2, mode="bilinear")


def test_sizes_are_rounded_down() -> None:
    assert interpolate(X, scale_factor=1.7).size() == (2, 3, 11, 10)
    # 7 in double, and 8 in float32, which ONNX's scales are
    wide = X.view(2, 3, 21, 2)[:, :, :10]
    assert interpolate(wide, scale_factor=0.7999999999999999).size() == (2, 3, 7, 1)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: interpolate(X), "wanted one of the two"),
        (lambda: interpolate(X, 2, 2), "wanted one of the two"),
        (lambda: interpolate(X, (1, 2, 3)), "wanted one number, or 2"),
        (lambda: interpolate(X, scale_factor=(1, 2, 3)), "wanted one number, or 2"),
        (lambda: interpolate(X, 0), "size is 0"),
        (lambda: interpolate(X, scale_factor=0.1), "leaves nothing"),
        (lambda: interpolate(X, scale_factor=float("inf")), "leaves nothing"),
        (lambda: interpolate(X, 2, align_corners=False), "leave it None"),
        (lambda: interpolate(X[0], 2), r"\(N, C, D, H, W\)"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(refused: Callable[[], QTensor], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        refused()


@pytest.mark.parametrize("mode", ["linear", "bicubic", "trilinear", "area", "sharp"])
def test_quantized_tensors_have_two_modes(mode: str) -> None:
    with pytest.raises(UnsupportedError, match=f"mode is '{mode}'"):
        interpolate(X, 2, mode=mode)
