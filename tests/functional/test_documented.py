"""The sessions of PyTorch's documents, with its functions of a tensor as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import functional, qtensor

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)


def test_a_tensor_is_quantized_looked_at_and_saved(tmp_path: Path) -> None:
    x = RNG.random((100, 100), np.float32)
    y = qtensor.quantize_linear(x, scale=0.05, zero_point=0, dtype=qtensor.qint8)
    assert y.size() == (100, 100)
    assert y.int_repr().dtype == np.int8
    assert repr(y.max()).startswith("QTensor(1.")
    assert y.argmin() == y.int_repr().argmin()
    assert y.transpose().size() == (100, 100)
    assert y.contiguous().permute(1, 0).contiguous().view(-1).size() == (10_000,)
    np.save(tmp_path / "float_tensor.npy", x)
    qtensor.save(y, tmp_path / "qtz_tensor.npz")
    sizes = [(tmp_path / n).stat().st_size for n in ("float_tensor.npy", "qtz_tensor.npz")]
    assert round(sizes[0] / sizes[1], 1) >= 3.7  # of 4; the rest is a header


def test_sums_take_scale_and_zero_point_from_out_or_as_arguments() -> None:
    a, b = (
        qtensor.quantize_linear(RNG.random((3, 4), np.float32), 0.05, 0, qtensor.qint8)
        for _ in range(2)
    )
    c = functional.add(a, b)
    assert (c.q_scale(), c.q_zero_point()) == (1, 0)
    c = qtensor._empty_affine_quantized(scale=0.5, zero_point=32, dtype=qtensor.qint8)
    functional.add(a, b, out=c)
    assert c.equal(functional.add(a, b, scale=0.5, zero_point=32))


def test_an_image_is_pooled_and_rectified() -> None:
    x = RNG.standard_normal((1, 3, 224, 224)).astype(np.float32)
    y = qtensor.quantize_linear(x, scale=0.05, zero_point=0, dtype=qtensor.qint8)
    v = functional.max_pool2d(y, 2)
    assert v.size() == (1, 3, 112, 112)
    assert functional.relu(v).min().item() == 0
