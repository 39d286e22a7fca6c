"""QLinearAdd and QLinearMul as ONNX Runtime computes them where x86 with AVX2 rounds otherwise.

Sums on ARM, in fixed point (`fixed_sum`):

    ra = a_scale / c_scale, rb = b_scale / c_scale          float32
    s = 21 - floor(log2(max(ra, rb))), m = rint(2^s r)      22 bits each
    t = (a - a_zp) ma + (b - b_zp) mb                       int32
    c = saturate(t / 2^s rounded, halves away from 0, + c_zp)

Where a ratio is below 2^-14 or not below 256, ARM computes c = rint(fma(a - a_zp, a_scale,
b_scale (b - b_zp)) / c_scale, saturated, + c_zp) in float32, a being the operand that is no scalar.

Products on ARM, by a fused multiply-add (`fused_product`), where x86 rounds product and sum:

    c = saturate(rint(fma((a - a_zp) (b - b_zp), a_scale b_scale / c_scale, c_zp)))

Sums on x86 without AVX2, which has no fused multiply-add (`unfused_sum`):

    r = c_zp - (ra a_zp + rb b_zp)
    c = saturate(rint((r + a ra) + b rb)),   (r + b rb) + a ra where B is a scalar

in float32, each product and each sum rounded. docs/why/numerics.md says how often they differ.
"""

import numpy as np

from onnxq.operator import Ints
from onnxq.operators._fma import fma
from onnxq.operators._integer_pairs import saturated_on_x86
from onnxq.qparams import IntArray, QParams


def unfused_sum(a: Ints, b: Ints, p: QParams, q: QParams, out: QParams) -> IntArray:
    """Integers of the sum of broadcasting int32 arrays; p, q, out: qparams of a, b, result."""
    ratio_a, ratio_b = np.float32(p.scale / out.scale), np.float32(q.scale / out.scale)
    zeros = [np.float32(each.zero_point) for each in (p, q, out)]
    rest = zeros[2] - (ratio_a * zeros[0] + ratio_b * zeros[1])
    first = rest + np.asarray(a, np.float32) * ratio_a
    return saturated_on_x86(first + np.asarray(b, np.float32) * ratio_b, out)


def unfused_sum_of_scalar(a: Ints, b: Ints, p: QParams, q: QParams, out: QParams) -> IntArray:
    """Integers of the sum where b is a scalar: it is added first; else as `unfused_sum`."""
    return unfused_sum(b, a, q, p, out)


BITS = 21  # of the greater multiplier, besides its leading one
LEAST_RATIO, RATIO_LIMIT = 2.0**-14, 2.0**8


@np.errstate(over="ignore")  # infinities, which saturate
def fixed_sum(a: Ints, b: Ints, p: QParams, q: QParams, out: QParams) -> IntArray:
    """Integers of the sum on ARM of int32 arrays; p, q, out: qparams of a, b, result."""
    left = np.asarray(a - p.zero_point.astype(np.int32))
    right = np.asarray(b - q.zero_point.astype(np.int32))
    ratios = [float(p.scale / out.scale), float(q.scale / out.scale)]
    zero = int(out.zero_point)
    if min(ratios) < LEAST_RATIO or max(ratios) >= RATIO_LIMIT:
        total = fma(left, p.scale, q.scale * right.astype(np.float32)) / out.scale
        # saturating after the zero point instead gives the same integers
        integers = np.rint(total.astype(np.float32) + np.float32(zero))
    else:
        shift = BITS - int(np.frexp(max(ratios))[1] - 1)
        m, n = (int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios)
        sums = left.astype(np.int64) * m + right.astype(np.int64) * n
        sums -= sums < 0
        integers = ((sums + (1 << (shift - 1))) >> shift) + zero
    return np.asarray(np.clip(integers, out.dtype.qmin, out.dtype.qmax).astype(out.dtype.storage))


def fused_product(a: Ints, b: Ints, p: QParams, q: QParams, out: QParams) -> IntArray:
    """Integers of the product on ARM, rounded once before the integer is; as `fixed_sum`.

    Products of 8-bit integers are below 2^24, so float32 holds them.
    """
    products = (a - p.zero_point.astype(np.int32)) * (b - q.zero_point.astype(np.int32))
    value = np.rint(fma(products, p.scale * q.scale / out.scale, out.zero_point))
    return np.asarray(np.clip(value, out.dtype.qmin, out.dtype.qmax).astype(out.dtype.storage))
