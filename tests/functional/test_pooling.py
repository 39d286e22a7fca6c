from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional import adaptive_avg_pool2d, avg_pool2d, avg_pool3d, max_pool2d
from onnxq.qparams import per_tensor
from onnxq.qtensor import QTensor, qint32, quantize_per_tensor, quint8

if TYPE_CHECKING:
    from collections.abc import Callable

X = quantize_per_tensor(
    np.random.default_rng(0).standard_normal((2, 3, 7, 6)).astype(np.float32), 0.03, 100, "quint8"
)
FOUR = QTensor(np.array([[[1, 2], [3, 8]]], np.uint8), per_tensor(1.0, 0, quint8))


def test_pools_keep_qparams() -> None:
    for y in (max_pool2d(X, 2), avg_pool2d(X, 2), adaptive_avg_pool2d(X, (3, 2))):
        assert y.qparams == X.qparams
        assert y.size()[:2] == (2, 3)


def test_one_image_needs_no_batch() -> None:
    assert max_pool2d(X[0], 2).equal(max_pool2d(X, 2)[0])
    assert avg_pool2d(X[0], 2, 1, 1).equal(avg_pool2d(X, 2, 1, 1)[0])
    assert adaptive_avg_pool2d(X[0], (3, 2)).equal(adaptive_avg_pool2d(X, (3, 2))[0])


def test_the_stride_is_the_kernel_by_default() -> None:
    for pool in (max_pool2d, avg_pool2d):
        assert pool(X, (2, 3)).equal(pool(X, (2, 3), (2, 3)))
        assert pool(X, 2, ()).equal(pool(X, 2, 2))


def test_maxima_take_every_type() -> None:
    integers = X.int_repr().astype(np.int32) * 1_000_003
    y = max_pool2d(QTensor(integers, per_tensor(1.0, 0, qint32)), (7, 6))
    assert np.array_equal(y.int_repr()[:, :, 0, 0], integers.max((2, 3)))


def test_padding_counts_unless_it_is_told_not_to() -> None:
    assert avg_pool2d(FOUR, 2, 2, 1).int_repr().tolist() == [[[0, 0], [1, 2]]]  # 1/4 2/4 3/4 8/4
    without = avg_pool2d(FOUR, 2, 2, 1, count_include_pad=False)
    assert without.int_repr().tolist() == [[[1, 2], [3, 8]]]


def test_a_divisor_stands_for_the_number_of_elements() -> None:
    assert avg_pool2d(FOUR, 2, divisor_override=7).int_repr().item() == 2
    assert avg_pool2d(FOUR, 2, 2, 1, divisor_override=1).int_repr().tolist() == [[[1, 2], [3, 8]]]
    with pytest.raises(ShapeError, match="divisor_override is 0"):
        avg_pool2d(FOUR, 2, divisor_override=0)


def test_depth_is_a_third_axis() -> None:
    x = X[:, :, None]
    y = avg_pool3d(x, (1, 2, 2), padding=(0, 1, 1), ceil_mode=True)
    assert y[:, :, 0].equal(avg_pool2d(X, 2, padding=1, ceil_mode=True))


def test_adaptive_windows_are_the_documented_ones() -> None:
    y = adaptive_avg_pool2d(X, (3, 4))
    integers = X.int_repr().astype(np.float64)
    for i, rows in enumerate([slice(0, 3), slice(2, 5), slice(4, 7)]):
        for j, columns in enumerate([slice(0, 2), slice(1, 3), slice(3, 5), slice(4, 6)]):
            mean = integers[:, :, rows, columns].mean((2, 3))
            # exact but for ties in float32
            assert np.abs(y.int_repr()[:, :, i, j] - mean).max() <= 0.5 + 1e-4


def test_adaptive_sizes_may_be_left_as_they_are() -> None:
    assert adaptive_avg_pool2d(X, (None, 2)).size() == (2, 3, 7, 2)
    assert adaptive_avg_pool2d(X, (7, 6)).equal(X)
    assert adaptive_avg_pool2d(X, 1).equal(X.mean((2, 3), keepdim=True))
    assert adaptive_avg_pool2d(X, (9, 13)).size() == (2, 3, 9, 13)


def test_an_empty_batch_stays_empty() -> None:
    assert avg_pool2d(X[:0], 2, padding=1).size() == (0, 3, 4, 4)
    assert adaptive_avg_pool2d(X[:0], 4).size() == (0, 3, 4, 4)
    assert max_pool2d(X[:0], 2).size() == (0, 3, 3, 3)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: max_pool2d(X[0, 0], 2), r"wanted \(N, C, H, W\) or \(C, H, W\)"),
        (lambda: max_pool2d(X, 0), "wanted 1 or more"),
        (lambda: max_pool2d(X, 2, 0), "wanted 1 or more"),
        (lambda: max_pool2d(X, 2, dilation=0), "dilation is 0"),
        (lambda: max_pool2d(X, 2, 2, 2), "0 to half of the kernel"),
        (lambda: max_pool2d(X, (2, 2, 2)), "wanted one number, or 2"),
        (lambda: max_pool2d(X, 9), "do not fit"),
        (lambda: avg_pool2d(X, 9), "do not fit"),
        (lambda: avg_pool2d(X, 2, padding=-1), "0 to half of the kernel"),
        (lambda: avg_pool3d(X, 2), r"wanted \(N, C, D, H, W\)"),
        (lambda: adaptive_avg_pool2d(X, 0), "wanted 1 or more"),
        (lambda: adaptive_avg_pool2d(X, (1, 2, 3)), "wanted one number or 2"),
        (lambda: adaptive_avg_pool2d(X[:, :, :0], 2), "and elements"),
    ],
)
def test_windows_that_do_not_fit_are_refused(refused: Callable[[], QTensor], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        refused()


def test_what_has_no_kernel_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="return_indices"):
        max_pool2d(X, 2, return_indices=True)
    wide = quantize_per_tensor(X.dequantize(), 0.03, 0, "int16")
    said = "input is int16; averages are of 8 bits"
    with pytest.raises(UnsupportedError, match=said):
        avg_pool2d(wide, 2)
    with pytest.raises(UnsupportedError, match=said):
        adaptive_avg_pool2d(wide, 2)
