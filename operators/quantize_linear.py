"""Reals to integers."""

from collections.abc import Iterable

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import quantize
from onnxq.dtypes import INT32
from onnxq.operator.examples import normal, scales, zero
from onnxq.operator.integer_call import QDTYPES, as_tensor
from onnxq.operator.site import MICROSOFT
from onnxq.operators._linear import REALS, SMALL_FLOATS, linear_qparams, small_float_scales

OVERFLOWS = {
    np.dtype(ml_dtypes.float8_e4m3fn): (480.0, 496.0, 448.0),  # elsewhere beyond 464: NaN
    np.dtype(ml_dtypes.float8_e5m2): (61440.0, 65536.0, np.nan),  # elsewhere beyond: Inf
}
"""Results that ONNX Runtime 1.31 makes of overflow that is not saturated: first and last
|x / y_scale|, and the result, found by a sweep over all float32 around the largest number."""


@op.register_integer
class QuantizeLinear(op.IntegerOperator):
    """y = saturate(rint(x / y_scale) + y_zero_point): inputs x, y_scale, y_zero_point.

    ONNX QuantizeLinear-10 to 25 and com.microsoft. Per tensor, per `axis`, or per `block_size`
    elements along it; x and y_scale are float32 or float16, the quotient is float32. The type of y
    is the zero point's, else `output_dtype`, else uint8; below 8 bits, y is an array of ml_dtypes.
    float8 and float4: x / y_scale cast to them, clamped to the finite numbers by `saturate` (1).
    ONNX Runtime does not look at `precision`.

    NaN, Inf and quotients beyond 2^31: see onnxq.affine.quantize. (ONNX Runtime 1.31 divides by
    zero, and takes the process along, when it quantizes an empty tensor in blocks.)
    """

    op_type = "QuantizeLinear"
    domains = ("", MICROSOFT)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        x, scale = call.operand(0, "x"), call.operand(1, "y_scale")
        if x.dtype not in REALS:
            raise call.shape_error(f"x has dtype {x.dtype}; wanted float32 or float16.")
        if scale.dtype != x.dtype:
            raise call.shape_error(
                f"y_scale has dtype {scale.dtype}, x {x.dtype}; ONNX Runtime wants them equal."
            )
        zero_point = call.optional(2)
        dtype = _target(call, zero_point)
        if dtype in SMALL_FLOATS:
            each = small_float_scales(call, "y", scale, zero_point, dtype, x.shape)
            return (_cast(x, each, dtype, call.integer("saturate", 1)),)
        qdtype = QDTYPES[dtype]
        reals = np.asarray(x, np.float32)
        y_qparams = linear_qparams(call, "y", scale, zero_point, qdtype, x.shape)
        return (as_tensor(quantize(reals, y_qparams), dtype),)

    def cases(self) -> Iterable[op.Case]:
        x = normal(3, 5) * np.float32(20)
        ties = np.arange(-9, 9, dtype=np.float32) / 2
        for dtype in ("uint8", "int8", "uint16", "int16"):
            point = zero(np.iinfo(dtype).max, dtype)
            yield op.Case(f"{dtype}, largest zero point", (x, scales(0.25), point), (1, 2))
        yield op.Case("ties, odd zero point", (ties, scales(1), zero(3)), (1, 2))
        odd = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45], np.float32)
        yield op.Case("NaN, Inf, overflow", (odd, scales(0.1), zero(-5, "int8")), (1, 2))
        yield op.Case("no zero point", (x, scales(0.5)), (1,))
        points = np.array([0, 7, 255], np.uint8)
        yield op.Case("per axis", (x, scales(0.1, 0.2, 3), points), (1, 2), {"axis": -2})
        yield op.Case("one scale of rank 1", (x, np.ones(1, np.float32), zero(9)), (1, 2))
        yield op.Case("empty", (normal(0, 3), scales(0.5), zero(3)), (1, 2))
        yield op.Case("rank 0", (np.array(2.5, np.float32), scales(1), zero(1)), (1, 2))


def onnx_only_cases() -> Iterable[op.Case]:
    """Examples that com.microsoft lacks: blocks, output_dtype, 2 bits, float8; types of 4 bits."""
    x = normal(3, 5) * np.float32(20)
    block = np.array([[0.5, 2, 1]] * 3, np.float32)
    points = np.array([[0, 1, 255]] * 3, np.uint8)
    attributes: dict[str, op.AttributeValue] = {"axis": 1, "block_size": 2}
    yield op.Case("blocks, the last one shorter", (x, block, points), (1, 2), attributes)
    half = np.array(0.1, np.float16)
    yield op.Case("float16", (x.astype(np.float16), half, zero(3)), (1, 2))
    yield op.Case("output_dtype", (x, scales(0.5)), (1,), {"output_dtype": ir.DataType.INT16.value})
    for narrow in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2):
        point = np.ones((), narrow)
        yield op.Case(point.dtype.name, (x, scales(2.5), point), (1, 2), opset=25)
    for small in SMALL_FLOATS[:4]:
        for saturate in (0, 1):
            yield op.Case(
                f"{small.name}, saturate {saturate}",
                (x * np.float32(5000), scales(2.5), np.zeros((), small)),
                (1, 2),
                {"saturate": saturate},
            )


def _target(call: op.IntegerCall, zero_point: op.Array | None) -> np.dtype[np.generic]:
    """The dtype of y. Raises ShapeError where ONNX quantizes nothing to it, or the two differ."""
    code = call.integer("output_dtype", 0)
    named = ir.DataType(code).numpy() if code else np.dtype(np.uint8)
    dtype = named if zero_point is None else zero_point.dtype
    if code and dtype != named:
        raise call.shape_error(f"output_dtype is {named}, y_zero_point {dtype}; make them equal.")
    if dtype not in SMALL_FLOATS and QDTYPES.get(dtype, INT32) == INT32:
        raise call.shape_error(
            f"y_zero_point or output_dtype gives y the dtype {dtype}; wanted an "
            "integer of at most 16 bits, or float8."
        )
    return dtype


def _cast(
    x: op.Array, each: npt.NDArray[np.float32], dtype: np.dtype[np.generic], saturate: int
) -> op.Array:
    """Quotients cast to a small float; not saturated, overflow is Inf, or NaN for want of it."""
    with np.errstate(all="ignore"):
        v = x.astype(np.float32) / each
        if saturate:
            largest = np.float32(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # theirs
            v = np.clip(v, -largest, largest)
        y = np.asarray(v, dtype)
        if saturate or dtype not in OVERFLOWS:
            return y
        low, high, instead = OVERFLOWS[dtype]
        odd = np.copysign(np.float32(instead), v).astype(dtype)
        return np.where((np.abs(v) >= low) & (np.abs(v) < high), odd, y)
