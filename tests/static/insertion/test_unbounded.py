from __future__ import annotations

import numpy as np
import pytest

from tests.golden_models import conv_model
from tests.static.rewrite.test_qdq import kernels, quantized, worst_lsb

CONSTANTS = {
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "border": np.array(-np.inf, np.float32),
    "mask": np.full((1, 8, 6, 6), -1e9, np.float32),
}


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) p = Pad(c, pads, border) m = MaxPool<kernel_shape=[3,3]>(p) y = Conv(m, v)",
        "c = Conv(x, w) p = Concat<axis=0>(c, mask) t = Transpose<perm=[1,0,2,3]>(p)"
        " r = ReduceMax<axes=[1]>(t) u = Transpose<perm=[1,0,2,3]>(r) y = Conv(u, v)",
    ],
)
def test_what_selects_from_infinities_stays_float(body: str) -> None:
    model = conv_model(body, constants={k: a for k, a in CONSTANTS.items() if k in body})
    integer, made, _ = quantized(model)
    assert kernels(integer).count("QLinearConv") == 2
    assert worst_lsb(model, integer, made) < 24
