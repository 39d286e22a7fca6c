"""Integers to reals."""

from collections.abc import Iterable
from dataclasses import replace

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize
from onnxq.dtypes import INT32
from onnxq.operator.examples import integers as random_integers
from onnxq.operator.examples import ints32, scales, zero
from onnxq.operator.integer_call import QDTYPES, stored
from onnxq.operator.site import MICROSOFT
from onnxq.operators._linear import REALS, SMALL_FLOATS, linear_qparams, small_float_scales, spread


@op.register_integer
class DequantizeLinear(op.IntegerOperator):
    """y = (x - x_zero_point) * x_scale, in float32: inputs x, x_scale, x_zero_point.

    ONNX DequantizeLinear-10 to 25 and com.microsoft. Per tensor, per `axis`, or per `block_size`
    elements along it. y has the scale's type, float32 or float16 (then y is rounded again), or
    `output_dtype`. x is of 2 to 16 bits (below 8: an array of ml_dtypes), int32 or float8 (float4
    too, which ONNX Runtime 1.31 lacks). For int32, x - x_zero_point wraps modulo 2^32.
    """

    op_type = "DequantizeLinear"
    domains = ("", MICROSOFT)

    def kernel(self, call: op.IntegerCall) -> tuple[op.Array, ...]:
        """Reals of x."""
        x, scale = call.operand(0, "x"), call.operand(1, "x_scale")
        zero_point = call.optional(2)
        code = call.integer("output_dtype", 0)
        dtype = ir.DataType(code).numpy() if code else scale.dtype
        if x.dtype in SMALL_FLOATS:
            each = small_float_scales(call, "x", scale, zero_point, x.dtype, x.shape)
            with np.errstate(over="ignore", under="ignore"):
                y = np.asarray(x.astype(np.float32) * each)
        else:
            y = _integers(call, x, scale, zero_point)
        if dtype not in REALS:
            raise call.shape_error(f"y would have dtype {dtype}; wanted float32 or float16.")
        with np.errstate(over="ignore", under="ignore"):
            return (y.astype(dtype, copy=False),)

    def cases(self) -> Iterable[op.Case]:
        for dtype in ("uint8", "int8", "uint16", "int16"):
            point = zero(np.iinfo(dtype).max, dtype)
            x = random_integers(3, 5, dtype=dtype)
            yield op.Case(f"{dtype}, largest zero point", (x, scales(0.3), point), (1, 2))
        x = random_integers(3, 5)
        yield op.Case("no zero point", (x, scales(0.7)), (1,))
        points = np.array([0, 7, 255], np.uint8)
        yield op.Case("per axis", (x, scales(0.1, 0.2, 3), points), (1, 2), {"axis": -2})
        biases = ints32(2**24 + 1, -(2**31), 2**31 - 1)
        yield op.Case("int32", (biases, scales(0.3)), (1,))
        yield op.Case("int32 per axis", (biases, scales(0.3, 2, 1e-3)), (1,), {"axis": 0})
        yield op.Case("empty", (random_integers(0, 3), scales(0.5), zero(3)), (1, 2))
        yield op.Case("rank 0", (zero(9), scales(0.3), zero(1)), (1, 2))


def onnx_only_cases() -> Iterable[op.Case]:
    """Examples that com.microsoft lacks: blocks, output_dtype, 2 bits, float8; types of 4 bits."""
    x = random_integers(3, 5)
    block = np.array([[0.5, 2, 0.3]] * 3, np.float32)
    points = np.array([[0, 1, 255]] * 3, np.uint8)
    attributes: dict[str, op.AttributeValue] = {"axis": 1, "block_size": 2}
    yield op.Case("blocks, the last one shorter", (x, block, points), (1, 2), attributes)
    yield op.Case("float16", (x, np.array(0.1, np.float16), zero(3)), (1, 2))
    half = ir.DataType.FLOAT16.value
    yield op.Case(
        "output_dtype", (x, scales(0.3), zero(3)), (1, 2), {"output_dtype": half}, opset=23
    )
    wrapping = (ints32(-(2**31), 5), scales(0.3), np.array(1, np.int32))
    yield op.Case("int32 whose difference wraps", wrapping, (1, 2))
    values = np.arange(-2, 2)
    for narrow in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2):
        point = np.ones((), narrow)
        signed = values if "u" not in point.dtype.name else values + 2
        yield op.Case(
            point.dtype.name, (signed.astype(narrow), scales(0.3), point), (0, 1, 2), opset=25
        )
    for small in SMALL_FLOATS[:4]:
        yield op.Case(small.name, (random_integers(16, 16).view(small), scales(0.3)), (0, 1))


def _integers(
    call: op.IntegerCall, x: op.Array, scale: op.Array, zero_point: op.Array | None
) -> npt.NDArray[np.float32]:
    """Reals of integers of any QDType."""
    qdtype = QDTYPES.get(x.dtype)
    if qdtype is None:
        wanted = ", ".join(dtype.name for dtype in (*QDTYPES, *SMALL_FLOATS))
        raise call.shape_error(f"x has dtype {x.dtype}; wanted one of {wanted}.")
    if scale.dtype not in REALS:
        raise call.shape_error(f"x_scale has dtype {scale.dtype}; wanted float32 or float16.")
    # ONNX Runtime multiplies by whatever is there; its quantizer writes 0 for a bias of zeros
    numbers = np.asarray(scale, np.float32)
    odd = not np.all((numbers > 0) & np.isfinite(numbers))
    steps = np.ones_like(scale) if odd else scale
    qparams = linear_qparams(call, "x", steps, zero_point, qdtype, x.shape)
    integers, zeros = stored(x), qparams.zero_point
    if qdtype == INT32 and zeros.any():
        points = spread(zeros, qparams.granularity, x.shape).astype(np.int64)
        integers = np.asarray(integers - points).astype(np.int32)  # modulo 2^32
        qparams = replace(qparams, zero_point=np.zeros_like(zeros))
    reals = dequantize(integers, qparams)
    if not odd:
        return reals
    each = numbers.reshape(qparams.scale.shape)
    with np.errstate(invalid="ignore", over="ignore"):  # 0 * Inf
        return np.asarray(reals * spread(each, qparams.granularity, x.shape))
