from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.affine import quantize
from onnxq.dtypes import INT4, INT8, INT32
from onnxq.qdq.tensors import (
    LAZY_BYTES,
    half_tensor,
    integer_tensor,
    transposed,
)
from onnxq.qparams import PerBlock, PerChannel, QParams, per_tensor


def test_integers_are_clipped_to_the_limit() -> None:
    w = ir.Tensor(np.array([-1.0, 1.0], np.float32))
    integers = integer_tensor(w, per_tensor(1 / 128, 0, INT8), 127, None, "w")
    assert integers.numpy().tolist() == [-127, 127]


def test_large_weight_is_quantized_only_when_asked_for() -> None:
    asked = []

    def make() -> ir.TensorProtocol:
        asked.append(1)
        return ir.Tensor(np.ones(LAZY_BYTES, np.float32))

    w = ir.LazyTensor(make, ir.DataType.FLOAT, ir.Shape([LAZY_BYTES]), name="w")
    integers = integer_tensor(w, per_tensor(1 / 64, 0, INT8), 127, None, "w_quantized")
    assert not asked
    assert (integers.dtype, integers.shape.numpy(), integers.name) == (
        ir.DataType.INT8,
        (LAZY_BYTES,),
        "w_quantized",
    )
    assert (integers.numpy() == 64).all()
    assert len(asked) == 1


def test_int4_integers_have_a_byte_each_unless_they_are_in_blocks() -> None:
    w = ir.Tensor(np.arange(-8, 8).astype(np.float32)[np.newaxis])
    in_blocks = QParams(
        np.ones((1, 1), np.float32), np.zeros((1, 1), np.int8), INT4, PerBlock(1, 16)
    )
    for qparams, kind, size in (
        (per_tensor(1, 0, INT4), ir.DataType.INT8, 16),
        (in_blocks, ir.DataType.INT4, 8),
    ):
        integers = integer_tensor(w, qparams, None, None, "w")
        assert (integers.dtype, len(integers.tobytes())) == (kind, size)
        assert integers.numpy().astype(int).tolist() == [list(range(-8, 8))]


def test_bias_of_one_element_is_repeated_for_per_channel_scales() -> None:
    p = QParams(np.array([0.5, 0.25], np.float32), np.zeros(2, np.int32), INT32, PerChannel(0))
    integers = integer_tensor(ir.Tensor(np.array([3.0], np.float32)), p, None, None, "b")
    assert integers.numpy().tolist() == [6, 12]


@pytest.mark.parametrize("size", [2, LAZY_BYTES // 4])
def test_bias_of_shape_1_n_is_declared_and_stored_as_a_vector(size: int) -> None:
    scales = np.full(size, 0.5, np.float32)
    p = QParams(scales, np.zeros(size, np.int32), INT32, PerChannel(0))
    bias = ir.Tensor(np.ones((1, size), np.float32))
    integers = integer_tensor(bias, p, None, (3.0,) * size, "b")
    assert integers.shape.numpy() == integers.numpy().shape == (size,)
    assert set(integers.numpy().tolist()) == {6}


def test_bits_are_those_of_quantize() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    p = QParams(np.array([0.01, 0.02, 0.03], np.float32), np.zeros(3, np.int8), INT8, PerChannel(0))
    integers = integer_tensor(ir.Tensor(x), p, None, None, "w")
    np.testing.assert_array_equal(integers.numpy(), quantize(x, p))


def test_transposed_weights_have_their_axes_in_the_order_of_perm() -> None:
    w = ir.Tensor(np.arange(6, dtype=np.float32).reshape(1, 2, 3))
    assert transposed(w, None) is w
    np.testing.assert_array_equal(transposed(w, (2, 0, 1)).numpy(), w.numpy().transpose(2, 0, 1))


def test_half_weights_are_rounded_to_the_nearest() -> None:
    half = half_tensor(ir.Tensor(np.array([1 / 3, 1.0], np.float32)), "w_half")
    assert half.dtype == ir.DataType.FLOAT16
    assert half.numpy().tolist() == [float(np.float16(1 / 3)), 1.0]
