"""QParams of every type and granularity, as random as they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from onnxq import dtypes
from onnxq.qparams import Granularity, PerBlock, PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.dtypes import QDType

NAMES = ("uint8", "int8", "uint16", "int16", "uint4", "int4", "uint2", "int2")
RUNS = [dtypes.find(name) for name in NAMES]
CASES = st.integers(0, 2**32 - 1)
GRANULARITIES: list[Granularity] = [
    PerTensor(),
    PerChannel(0),
    PerChannel(1),
    PerChannel(-1),
    PerBlock(1, 4),
    PerBlock(0, 3),
    PerBlock(-1, 2),
]
SHAPE = (6, 8, 5)


def make(scale: object, zero_point: object, dtype: QDType, granularity: Granularity) -> QParams:
    return QParams(
        np.asarray(scale, np.float32), np.asarray(zero_point, np.int64), dtype, granularity
    )


def random_qparams(
    rng: np.random.Generator, dtype: QDType, granularity: Granularity, shape: Sequence[int]
) -> QParams:
    """Scales that are whole, powers of two or anything; zero points at both ends and between."""
    if isinstance(granularity, PerTensor):
        of: tuple[int, ...] = ()
    elif isinstance(granularity, PerChannel):
        of = (shape[granularity.axis],)
    else:
        axis, size = granularity.axis % len(shape), granularity.size
        of = tuple(-(-n // size) if i == axis else n for i, n in enumerate(shape))
    kinds = [
        rng.uniform(1e-3, 1, of),
        2.0 ** rng.integers(-10, 3, of),
        10.0 ** rng.uniform(-4, 4, of),
    ]
    scale = np.float16(kinds[rng.integers(3)]).astype(
        np.float32
    )  # a float16 scale is exact in both
    ends: list[int] = [dtype.qmin, dtype.qmax, 0, (dtype.qmin + dtype.qmax) // 2, dtype.qmin + 1]
    zero_point = rng.choice([*ends, int(rng.integers(dtype.qmin, dtype.qmax + 1))], of)
    return make(scale, zero_point, dtype, granularity)
