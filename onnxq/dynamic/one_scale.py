"""One scale in place of one per column, where that costs little and the objective is speed.

ONNX Runtime multiplies x_scale by each column's w_scale whenever a product runs, a time per column
that all rows share: much of a product of a few rows, and little of one of FEW_ROWS and more, where
a scale per column is nearly always worth it (benchmarks/results/dynamic.md).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from onnxq.dynamic.dynamic_decision import DynamicWeightPlan

FEW_ROWS = 32
"""Where there may be fewer rows than that, one scale is worth the accuracy that it costs."""
INTEGERS_LEFT = 32
"""Largest code that every column must keep: -32..32 of -127..127, or of -64..64 on AVX2."""
DEAD = 2.0**-20  # columns of zeros have a scale too, but nothing to lose


def with_one_scale(weight: DynamicWeightPlan) -> DynamicWeightPlan:
    """The weight with its largest scale for all columns, or as it is where a column loses too much.

    A column whose scale is s keeps integers up to integer_limit * s / max s; errors of rounding
    grow by max s / s. Weights with zero points, blocks, or one scale already stay as they are.
    """
    qparams, limit = weight.qparams, weight.integer_limit
    if qparams is None or limit is None or not isinstance(qparams.granularity, PerChannel):
        return weight
    if qparams.zero_point.any():
        return weight
    share = qparams.scale / qparams.scale.max()
    if share[share > DEAD].min() * limit < INTEGERS_LEFT:
        return weight
    one = QParams(qparams.scale.max(), np.zeros((), np.int64), qparams.dtype, PerTensor())
    return dataclasses.replace(weight, qparams=one)
