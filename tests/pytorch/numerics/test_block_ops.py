"""The operator of a MatMul with a weight in blocks, against onnxq's kernel of MatMulNBits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq import catalog
from onnxq.operator import IntegerCall
from onnxq.operator.site import MICROSOFT
from onnxq.pytorch.numerics.dynamic_ops import matmul_n_bits, real_weight
from onnxq.qparams.group_spec import GroupSpec, Scheme
from onnxq.qparams.groups import GroupIntegers


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_it_computes_what_the_kernel_does(bits: int, symmetric: bool) -> None:
    rng = np.random.default_rng(bits)
    spec = GroupSpec(bits, 16, Scheme.SYMMETRIC if symmetric else Scheme.AFFINE)
    integers = rng.integers(0, 1 << bits, (5, 40)).astype(np.uint8)
    middle = np.full((5, 3), 1 << (bits - 1), np.uint8)
    points = middle if symmetric else rng.integers(0, 1 << bits, (5, 3)).astype(np.uint8)
    scale = rng.uniform(0.1, 1, (5, 3)).astype(np.float32)
    found = GroupIntegers(spec, integers, scale, points)
    packed, x, bias = found.packed(), rng.normal(size=(2, 3, 40)), rng.normal(size=5)
    x, bias = x.astype(np.float32), bias.astype(np.float32)
    stored, scales = (
        torch.from_numpy(packed.integers.copy()),
        torch.from_numpy(packed.scales.copy()),
    )
    zeros = None if packed.zero_points is None else torch.from_numpy(packed.zero_points.copy())
    weight = real_weight(stored, scales, zeros, 40, bits)
    assert np.array_equal(weight.numpy(), found.dequantized)
    real_x, real_bias = torch.from_numpy(x), torch.from_numpy(bias)
    y = matmul_n_bits(real_x, stored, scales, zeros, real_bias, 40, bits, 16)
    kernel = catalog.find_integer("MatMulNBits", MICROSOFT)
    assert kernel is not None
    sizes = {"K": 40, "N": 5, "bits": bits, "block_size": 16}
    call = IntegerCall(
        "MatMulNBits",
        [x, packed.integers, packed.scales, packed.zero_points, None, bias],
        attributes=sizes,
    )
    bound = kernel.bound(call)
    assert bound is not None
    assert (np.abs(y.numpy() - kernel.kernel(call)[0]) <= bound).all()
