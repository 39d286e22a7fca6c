from __future__ import annotations

import numpy as np

from onnxq import qtensor
from onnxq.qparams import PerBlock, QParams
from onnxq.qtensor import QTensor, quantize_per_channel, quantize_per_tensor


def test_it_prints_real_values_and_qparams() -> None:
    x = np.array([[0.1, -0.25]], np.float32)
    assert repr(quantize_per_tensor(x, 0.05, 10, qtensor.quint8)) == (
        "QTensor([[ 0.1000, -0.2500]], size=(1, 2), dtype=quint8,\n"
        "        quantization_scheme=per_tensor_affine, scale=0.05, zero_point=10)"
    )


def test_whole_numbers_print_without_digits_behind_the_point() -> None:
    y = quantize_per_tensor(np.array([1, 2], np.float32), 0.5, 0, qtensor.qint8)
    assert repr(y).startswith("QTensor([1., 2.], size=(2,), dtype=qint8")


def test_channels_print_their_scales() -> None:
    y = quantize_per_channel(np.zeros((2, 1), np.float32), [0.1, 0.2], [0, 1], 0, qtensor.qint8)
    assert "scale=[0.1, 0.2]" in repr(y)
    assert repr(y).endswith("zero_point=[0, 1], axis=0)")


def test_blocks_print_their_size() -> None:
    p = QParams(
        np.ones((2, 2), np.float32), np.zeros((2, 2), np.int8), qtensor.qint8, PerBlock(1, 2)
    )
    text = repr(QTensor(np.zeros((2, 4), np.int8), p))
    assert "per_block_affine" in text
    assert text.endswith("axis=1, block_size=2)")


def test_large_tensors_are_cut_and_empty_ones_are_short() -> None:
    large = quantize_per_tensor(np.full((50, 50), 0.3, np.float32), 0.1, 0, qtensor.qint8)
    assert len(repr(large).splitlines()) < 12
    assert repr(large[:0]).startswith("QTensor([], size=(0, 50)")
